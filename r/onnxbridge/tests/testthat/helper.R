# Tests need a Python with onnxbridge: CI names it, and elsewhere tests without one are skipped.
need_python <- function() {
  found <- tryCatch(is.list(call_python("version")), onnxbridge_error = function(e) FALSE)
  testthat::skip_if_not(found, "no Python with onnxbridge was found")
}

# y = tanh(x w + b), with two outputs: y and the index of its largest element.
small_model <- function() {
  w <- matrix(c(1, 2, 3, 4, 5, 6) / 10, 3, 2)
  graph <- make_graph(
    list(
      make_node("Gemm", c("x", "w", "b"), "z", alpha = 1),
      make_node("Tanh", "z", "y", name = "act"),
      make_node("ArgMax", "y", "k", axis = 1, keepdims = FALSE)
    ),
    "small",
    list(make_tensor_value_info("x", "float", list("N", 3))),
    list(make_tensor_value_info("y", "float", list("N", 2)), make_tensor_value_info("k", "int64", "N")),
    list(make_tensor("w", "float", c(3, 2), w), make_tensor("b", "FLOAT", 2, c(0.5, -0.5)))
  )
  make_model(graph)
}
w <- matrix(c(1, 2, 3, 4, 5, 6) / 10, 3, 2)
expected_of <- function(x) tanh(sweep(x %*% w, 2, c(0.5, -0.5), "+"))
