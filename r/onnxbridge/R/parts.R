# The parts of a model: descriptions from which onnxbridge makes ONNX's messages when a model is checked, saved or run.

part <- function(.part, ...) structure(list(part = .part, ...), class = c(paste0("onnx_", .part), "onnx_part"))

as_part <- function(x, kind, what) {
  if (!inherits(x, paste0("onnx_", kind))) {
    stop(condition("UsageError", paste0(what, " is no ", kind, ", as make_", if (kind == "value_info") "tensor_value_info" else kind,
                                        "() makes it"), 2L))
  }
  x
}

as_parts <- function(x, kind, what) {
  if (inherits(x, "onnx_part")) {
    x <- list(x)
  }
  lapply(seq_along(x), function(i) as_part(x[[i]], kind, paste0(what, "[[", i, "]]")))
}

#' @rdname make_tensor
make_tensor <- function(name, data_type, dims, vals) {
  flat <- encode_array(vals, name)
  flat$shape <- list(length(vals))
  part("tensor", name = name, data_type = data_type, dims = as.list(dims), vals = flat)
}

#' @rdname make_tensor
make_tensor_value_info <- function(name, elem_type, shape, doc_string = "") {
  part("value_info", name = name, elem_type = elem_type, shape = if (is.null(shape)) NULL else as.list(shape),
       doc_string = doc_string)
}

#' @rdname make_tensor
make_attribute <- function(key, value, doc_string = "") {
  single <- inherits(value, "onnx_part") || (!is.list(value) && length(value) == 1 && !inherits(value, "AsIs"))
  if (inherits(value, "onnx_part")) {
    value <- list(value)
  }
  kind <- if (is.list(value)) "part" else if (is.character(value)) "string" else if (is.double(value)) "float" else "int"
  if (!is.list(value) && !is.character(value) && !is.numeric(value) && !is.logical(value)) {
    stop(condition("UsageError", paste0("the attribute '", key, "' is a ", class(value)[1], ", not numbers, text or parts"), 2L))
  }
  values <- switch(kind,
    part = unclass(value), string = as.list(unclass(value)), float = lapply(value, format, digits = 17),
    int = lapply(as.integer(value), as.character)
  )
  part("attribute", key = key, kind = kind, values = values, single = single, doc_string = doc_string)
}

#' @rdname make_tensor
make_node <- function(op_type, inputs, outputs, name = NULL, doc_string = NULL, ..., domain = NULL) {
  attributes <- list(...)
  if (length(attributes) && (is.null(names(attributes)) || any(!nzchar(names(attributes))))) {
    stop(condition("UsageError", paste0("the attributes of the node ", op_type, " need names, such as axis = 1L"), 2L))
  }
  made <- lapply(names(attributes), function(key) {
    value <- attributes[[key]]
    if (inherits(value, "onnx_attribute")) value else make_attribute(key, value)
  })
  part("node", op_type = op_type, inputs = as.list(inputs), outputs = as.list(outputs), name = name, doc_string = doc_string,
       domain = domain, attributes = made)
}

#' @rdname make_tensor
make_graph <- function(nodes, name, inputs, outputs, initializer = list(), doc_string = NULL, value_info = list()) {
  part("graph", nodes = as_parts(nodes, "node", "nodes"), name = name, inputs = as_parts(inputs, "value_info", "inputs"),
       outputs = as_parts(outputs, "value_info", "outputs"), initializer = as_parts(initializer, "tensor", "initializer"),
       doc_string = doc_string, value_info = as_parts(value_info, "value_info", "value_info"))
}

#' @rdname make_model
make_model <- function(graph, opset = 22L, ir_version = 10L) {
  imports <- if (is.null(names(opset))) list(opset) else as.list(opset)
  if (is.null(names(opset))) {
    names(imports) <- ""
  }
  opsets <- lapply(seq_along(imports), function(i) list(domain = names(imports)[i], version = imports[[i]]))
  description <- part("model", graph = as_part(graph, "graph", "graph"), opsets = opsets, ir_version = ir_version)
  new_model(call_python("save", model = description, path = tempfile(fileext = ".onnx")))
}

#' @export
print.onnx_part <- function(x, ...) {
  cat(print_text(x), "\n", sep = "")
  invisible(x)
}
