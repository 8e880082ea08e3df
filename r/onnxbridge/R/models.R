# Models are files; objects of class onnx_model hold the path. A model that was made or changed is a temporary file until save_model().

new_model <- function(path) structure(list(path = normalizePath(path, mustWork = TRUE)), class = "onnx_model")

# The path of a model, or a description, as Python takes it.
as_model <- function(x) {
  if (inherits(x, "onnx_model")) {
    return(x$path)
  }
  if (inherits(x, "onnx_part")) {
    return(x)
  }
  if (is.character(x) && length(x) == 1) {
    return(existing(x))
  }
  stop(condition("UsageError", paste0("a model is a path, or what load_from_file() or make_model() gives, not a ", class(x)[1]), 2L))
}

existing <- function(path) {
  if (!file.exists(path)) {
    stop(condition("UsageError", paste0(path, ": no such file"), 2L))
  }
  normalizePath(path)
}

#' @rdname load_from_file
load_from_file <- function(name) {
  model <- new_model(existing(name))
  call_python("signature", model = model$path)
  model
}

#' @rdname load_from_file
load_from_string <- function(s) {
  path <- tempfile(fileext = ".onnx")
  writeBin(if (is.raw(s)) s else charToRaw(s), path)
  load_from_file(path)
}

#' @rdname check
check <- function(proto) {
  invisible(call_python("check", part = as_model(proto)))
}

#' @rdname print_readable
print_readable <- function(graph) {
  cat(print_text(graph), "\n", sep = "")
  invisible(graph)
}

print_text <- function(x) call_python("readable", part = as_model(x))

#' @rdname make_model
save_model <- function(model, path) {
  if (!dir.exists(dirname(path))) {
    stop(condition("UsageError", paste0(dirname(path), ": no such folder"), 2L))
  }
  invisible(new_model(call_python("save", model = as_model(model), path = path)))
}

#' @rdname make_model
infer_shapes <- function(model) {
  new_model(call_python("infer_shapes", model = as_model(model), path = tempfile(fileext = ".onnx")))
}

#' @export
print.onnx_model <- function(x, ...) {
  cat("<onnx_model> ", x$path, "\n", sep = "")
  found <- call_python("signature", model = x$path)
  for (kind in c("inputs", "outputs")) {
    for (value in found[[kind]]) {
      cat(sprintf("  %-7s %s: %s[%s]\n", sub("s$", "", kind), value$name, value$dtype, paste(unlist(value$shape), collapse = ", ")))
    }
  }
  invisible(x)
}

#' @export
summary.onnx_model <- function(object, ...) onnx_inspect(object$path)
