#' @rdname onnx_run
onnx_run <- function(model, inputs, device = "auto") {
  if (!is.list(inputs) || is.data.frame(inputs)) {
    inputs <- one_input(model, inputs)
  }
  if (length(inputs) && (is.null(names(inputs)) || any(!nzchar(names(inputs))))) {
    stop(condition("UsageError", "the inputs need names: list(x = ...)", 2L))
  }
  sent <- lapply(names(inputs), function(name) encode_array(plain(inputs[[name]], name), name))
  names(sent) <- names(inputs)
  found <- call_python("run", model = as_model(model), inputs = if (length(sent)) sent else structure(list(), names = character()),
                       device = device)
  outputs <- lapply(found, decode_array)
  names(outputs) <- vapply(found, function(f) f$name, "")
  outputs
}

#' @rdname onnx_run
predict.onnx_model <- function(object, newdata, ...) {
  found <- onnx_run(object, newdata, ...)
  if (length(found) == 1) found[[1]] else found
}

# A data frame becomes a matrix, or a column for each input of the columns' names, as models of tables have them.
one_input <- function(model, data) {
  expected <- call_python("signature", model = as_model(model))$inputs
  names <- vapply(expected, function(value) value$name, "")
  if (is.data.frame(data) && length(names) > 1) {
    missing <- setdiff(names, names(data))
    if (length(missing)) {
      stop(condition("UsageError", paste0("the data has no column '", missing[1], "'; the model's inputs are ",
                                          paste(names, collapse = ", ")), 2L))
    }
    columns <- lapply(seq_along(names), function(i) {
      column <- data[[names[i]]]
      if (is.factor(column)) {
        column <- as.character(column)
      }
      if (length(expected[[i]]$shape) == 2) matrix(column, ncol = 1) else column
    })
    return(stats::setNames(columns, names))
  }
  if (length(names) != 1) {
    stop(condition("UsageError", paste0("the model has ", length(names), " inputs: give a list, ",
                                        paste0(names, " = ...", collapse = ", ")), 2L))
  }
  stats::setNames(list(data), names)
}

plain <- function(x, name) {
  if (!is.data.frame(x)) {
    return(x)
  }
  factors <- vapply(x, is.factor, NA)
  texts <- factors | vapply(x, is.character, NA)
  if (any(texts) && !all(texts)) {
    stop(condition("UsageError", paste0("the column '", names(x)[texts][1], "' of the input '", name, "' is text or a factor, and ",
                                        "others are numbers; make numbers of it first, as model.matrix() does"), 2L))
  }
  x[factors] <- lapply(x[factors], as.character)
  as.matrix(x)
}
