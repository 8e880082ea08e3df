# The Python that has onnxbridge, and calls to it. A call is JSON: in a process of its own, or by reticulate if the option
# onnxbridge.reticulate is TRUE. Nothing but text crosses the border, so that the versions of NumPy and reticulate do not matter.

onnx_python <- function() {
  named <- getOption("onnxbridge.python", Sys.getenv("ONNXBRIDGE_PYTHON"))
  if (nzchar(named)) {
    return(named)
  }
  command <- Sys.which("onnxbridge")
  folder <- if (nzchar(command)) dirname(command) else ""
  beside <- file.path(folder, if (.Platform$OS.type == "windows") "python.exe" else "python")
  if (nzchar(folder) && file.exists(beside)) {
    return(beside)
  }
  found <- Sys.which(c("python3", "python"))
  unname(found[nzchar(found)][1])
}

how_to_install <- paste0(
  "install it with `pip install onnxbridge`, and name its Python if it is not the one on the path: ",
  "options(onnxbridge.python = \"/path/to/python\") or the environment variable ONNXBRIDGE_PYTHON"
)

# One of the functions of the Python module onnxbridge.json_calls.
call_python <- function(name, ...) {
  given <- list(...)
  if (!length(given)) {
    names(given) <- character()
  }
  request <- as_json(list(call = name, with = given))
  reply <- jsonlite::fromJSON(
    if (isTRUE(getOption("onnxbridge.reticulate"))) by_reticulate(request) else by_process(request),
    simplifyVector = FALSE
  )
  if (!is.null(reply$error)) {
    stop(condition(reply$error$type, reply$error$message, reply$error$exit_code))
  }
  reply$result
}

as_json <- function(value) jsonlite::toJSON(without_classes(value), auto_unbox = TRUE, null = "null", na = "null", digits = NA)

without_classes <- function(x) if (is.list(x)) lapply(unclass(x), without_classes) else x

by_process <- function(request) {
  files <- tempfile(c("request", "reply"), fileext = ".json")
  on.exit(unlink(files))
  writeLines(enc2utf8(request), files[1], useBytes = TRUE)
  result <- run_python(c("-m", "onnxbridge.json_calls", files))
  if (!file.exists(files[2])) {
    stop(condition("MissingPython", failed_to_start(result$stderr), 5L))
  }
  paste(readLines(files[2], encoding = "UTF-8", warn = FALSE), collapse = "\n")
}

by_reticulate <- function(request) {
  if (!requireNamespace("reticulate", quietly = TRUE)) {
    stop(condition("MissingPython", "the option onnxbridge.reticulate is TRUE, but the package reticulate is not installed", 5L))
  }
  if (!reticulate::py_available()) {
    reticulate::use_python(onnx_python(), required = TRUE)
  }
  calls <- tryCatch(
    reticulate::import("onnxbridge.json_calls"),
    error = function(e) stop(condition("MissingPython", failed_to_start(conditionMessage(e)), 5L))
  )
  calls$call(as.character(request))
}

run_python <- function(arguments, python = onnx_python()) {
  if (is.na(python)) {
    stop(condition("MissingPython", paste0("no Python was found; onnxbridge needs it: ", how_to_install), 5L))
  }
  files <- tempfile(c("stdout", "stderr"))
  on.exit(unlink(files))
  status <- suppressWarnings(system2(python, shQuote(arguments), stdout = files[1], stderr = files[2]))
  text <- lapply(files, function(f) if (file.exists(f)) readLines(f, encoding = "UTF-8", warn = FALSE) else character())
  list(status = status, stdout = text[[1]], stderr = text[[2]])
}

failed_to_start <- function(lines) {
  lines <- lines[nzchar(lines)]
  reason <- if (length(lines)) lines[length(lines)] else "it could not be started"
  paste0(onnx_python(), " has no onnxbridge (", reason, "); ", how_to_install)
}

# An error whose class says what went wrong: "onnxbridge_usage_error" for Python's UsageError.
condition <- function(type, message, exit_code) {
  name <- tolower(gsub("(?<=[a-z])(?=[A-Z])", "_", sub("Error$", "", type), perl = TRUE))
  structure(
    class = c(paste0("onnxbridge_", name, "_error"), "onnxbridge_error", "error", "condition"),
    list(message = message, call = NULL, exit_code = exit_code)
  )
}

#' @rdname onnx_sitrep
onnx_sitrep <- function() {
  python <- onnx_python()
  versions <- call_python("version")
  cat("Python:     ", python, "\n", sep = "")
  cat("onnxbridge: ", versions$onnxbridge, " (onnx ", versions$onnx, ")\n", sep = "")
  cat("called:     ", if (isTRUE(getOption("onnxbridge.reticulate"))) "by reticulate" else "as a process", "\n", sep = "")
  invisible(c(list(python = python), versions))
}
