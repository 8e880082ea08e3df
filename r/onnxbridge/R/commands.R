# The commands of onnxbridge, whose results are read from their JSON.

command <- function(arguments, allowed = 0L) {
  result <- run_python(c("-m", "onnxbridge", arguments, "--json"))
  found <- tryCatch(jsonlite::fromJSON(paste(result$stdout, collapse = "\n"), simplifyVector = FALSE), error = function(e) NULL)
  if (is.null(found)) {
    stop(condition("MissingPython", failed_to_start(result$stderr), 5L))
  }
  failed <- result$status == 1L && identical(found$verdict, "FAILED")
  if (!(result$status %in% allowed) && !failed) {
    error <- found$error
    lines <- result$stderr[nzchar(result$stderr)]
    message <- if (is.null(error$message)) paste(lines, collapse = "\n") else error$message
    stop(condition(if (is.null(error$type)) "OnnxbridgeError" else error$type, message, result$status))
  }
  found
}

flags <- function(name, values) unlist(lapply(values, function(value) c(paste0("--", name), value)))

inputs_flags <- function(inputs) {
  if (is.null(names(inputs))) flags("inputs", inputs) else flags("inputs", paste0(names(inputs), ":", inputs))
}

options_flags <- function(options) {
  unlist(lapply(names(options), function(name) {
    value <- options[[name]]
    flag <- gsub("_", "-", name)
    if (isTRUE(value)) paste0("--", flag) else if (identical(value, FALSE)) paste0("--no-", flag) else flags(flag, as.character(value))
  }))
}

source_path <- function(x) if (inherits(x, "onnx_model")) x$path else x

# A row for each output of a verification.
outputs_frame <- function(verification) {
  number <- function(x) if (is.null(x)) NA_real_ else suppressWarnings(as.numeric(sub("Infinity", "Inf", x)))
  rows <- lapply(verification$outputs, function(o) {
    data.frame(output = o$name, dtype = o$dtype, shape = paste(unlist(o$shape), collapse = "x"), max_abs = number(o$max_abs),
               max_rel = number(o$max_rel), atol = number(o$atol), rtol = number(o$rtol), passed = isTRUE(o$passed))
  })
  if (length(rows)) do.call(rbind, rows) else data.frame()
}

#' @rdname onnx_convert
onnx_convert <- function(source, to = NULL, output, inputs = NULL, ...) {
  arguments <- c("convert", source_path(source), "-o", output, if (!is.null(to)) c("--to", to), inputs_flags(inputs),
                 options_flags(list(...)))
  found <- command(arguments)
  if (identical(found$verdict, "FAILED")) {
    worst <- outputs_frame(found$verification)
    worst <- worst[!worst$passed, , drop = FALSE]
    stop(condition("VerificationError", paste0("the converted model does not compute the same: ", paste0(
      worst$output, " is off by ", signif(worst$max_abs, 2), " (allowed ", signif(worst$atol, 2), ")", collapse = "; "
    )), 1L))
  }
  result <- list(verdict = found$verdict, files = vapply(found$written_files, function(f) f$path, ""),
                 outputs = outputs_frame(found$verification), document = found)
  structure(result, class = "onnx_conversion")
}

#' @rdname onnx_convert
onnx_verify <- function(reference, candidate, inputs = NULL, ...) {
  found <- command(c("verify", source_path(reference), source_path(candidate), inputs_flags(inputs), options_flags(list(...))))
  frame <- outputs_frame(found)
  attr(frame, "verdict") <- found$verdict
  frame
}

#' @rdname onnx_inspect
onnx_check <- function(source, to = "onnx", ...) {
  found <- command(c("check", source_path(source), "--to", to, options_flags(list(...))), allowed = c(0L, 3L))
  problems <- lapply(found$problems, function(p) {
    text <- function(x) if (is.null(x)) "" else paste(unlist(x), collapse = ", ")
    data.frame(op = text(p$op), reason = text(p$reason), hint = text(p$hint))
  })
  if (length(problems)) do.call(rbind, problems) else data.frame(op = character(), reason = character(), hint = character())
}

#' @rdname onnx_inspect
onnx_inspect <- function(source, ...) command(c("inspect", source_path(source), options_flags(list(...))))

#' @rdname onnx_inspect
onnx_opset <- function(model, version, output, ...) {
  command(c("opset", source_path(model), "-o", output, "--to", as.character(version), options_flags(list(...))))
  new_model(output)
}
