# Arrays as JSON: their elements in R's column-major order, as bytes in base64, which keeps every bit of a double.

encode_array <- function(x, name) {
  if (is.factor(x)) {
    x <- as.character(x)
  }
  if (inherits(x, c("Date", "POSIXt"))) {
    stop(condition("UsageError", paste0("the input '", name, "' is a date; convert it to numbers first"), 2L))
  }
  shape <- as.list(if (is.null(dim(x))) length(x) else dim(x))
  if (is.character(x)) {
    return(list(kind = "string", shape = shape, values = as.list(as.vector(x))))
  }
  kind <- switch(typeof(x), double = "float64", integer = "int32", logical = "bool", NA)
  if (is.na(kind)) {
    stop(condition("UsageError", paste0("the input '", name, "' is a ", class(x)[1], ", not an array of numbers or text"), 2L))
  }
  numbers <- if (kind == "float64") as.double(x) else as.integer(x)
  list(kind = kind, shape = shape, values = gsub("\n", "", jsonlite::base64_enc(writeBin(numbers, raw(), endian = "little"))))
}

decode_array <- function(sent) {
  shape <- as.integer(unlist(sent$shape))
  count <- if (length(shape)) prod(shape) else 1
  values <- if (sent$kind == "string") {
    vapply(sent$values, identity, "")
  } else {
    kind <- if (sent$kind == "float64") "double" else "integer"
    found <- readBin(jsonlite::base64_dec(sent$values), kind, count, endian = "little")
    if (sent$kind == "bool") as.logical(found) else found
  }
  if (length(shape) > 1) array(values, shape) else values
}
