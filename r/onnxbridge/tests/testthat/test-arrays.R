identity_model <- function(type, shape) {
  make_model(make_graph(
    list(make_node("Identity", "x", "y")), "same", list(make_tensor_value_info("x", type, shape)),
    list(make_tensor_value_info("y", type, shape))
  ))
}

test_that("arrays come back as they were, element by element", {
  need_python()
  x <- array(rnorm(24), c(2, 3, 4))
  expect_identical(predict(identity_model("double", list(2, 3, 4)), x), x)
  expect_identical(predict(identity_model("double", list("N")), c(1e-300, Inf, -Inf, pi)), c(1e-300, Inf, -Inf, pi))
  expect_true(is.nan(predict(identity_model("double", list(1)), NaN)))
  expect_identical(predict(identity_model("int32", list(2, 2)), matrix(1:4, 2)), matrix(1:4, 2))
  expect_identical(predict(identity_model("int64", list(2)), c(2^40, -3)), c(2^40, -3))
  expect_identical(predict(identity_model("bool", list(3)), c(TRUE, FALSE, TRUE)), c(TRUE, FALSE, TRUE))
  expect_identical(predict(identity_model("string", list(2)), c("Gr\u00fc\u00dfe", "")), c("Gr\u00fc\u00dfe", ""))
  expect_identical(predict(identity_model("uint8", list(2)), c(255, 0)), c(255L, 0L))
  expect_equal(predict(identity_model("float16", list(1)), 0.1), 0.1, tolerance = 1e-3)
  expect_identical(dim(predict(identity_model("float", list(0, 3)), matrix(0, 0, 3))), c(0L, 3L))
})

test_that("elements are where Python has them", {
  need_python()
  x <- array(as.numeric(0:23), c(2, 3, 4))
  model <- make_model(make_graph(
    list(make_node("Constant", character(), "at", value = make_tensor("i", "int64", c(1, 3), c(1, 2, 3))),
         make_node("GatherND", c("x", "at"), "y")),
    "one", list(make_tensor_value_info("x", "double", list(2, 3, 4))), list(make_tensor_value_info("y", "double", list(1)))
  ))
  expect_identical(predict(model, x), x[2, 3, 4])
  made <- make_model(make_graph(
    list(make_node("Add", c("x", "w"), "y")), "sum", list(make_tensor_value_info("x", "double", list(2, 3))),
    list(make_tensor_value_info("y", "double", list(2, 3))), make_tensor("w", "double", c(2, 3), matrix(1:6, 2))
  ))
  expect_identical(predict(made, matrix(0, 2, 3)), matrix(as.numeric(1:6), 2))
})

test_that("what does not fit is said", {
  need_python()
  model <- small_model()
  expect_error(predict(model, matrix(0, 2, 4)), "the input 'x' has the shape \\[2, 4\\], and the model expects \\[N, 3\\]")
  expect_error(onnx_run(model, list(z = 1)), "the model has no input 'z'; its inputs are x", class = "onnxbridge_usage_error")
  expect_error(onnx_run(model, list()), "needs the input 'x'")
  expect_error(predict(model, matrix(c(NA, 1, 1), 1)), NA)
  expect_error(predict(identity_model("int32", list(2)), c(1L, NA)), "missing values")
  expect_error(predict(identity_model("int32", list(1)), 0.5), "has fractions")
  expect_error(predict(identity_model("int8", list(1)), 300), "int8 does not hold")
  expect_error(predict(identity_model("float", list(1)), "a"), "is text, and the model expects float32")
  expect_error(predict(model, Sys.Date()), "is a date")
  expect_error(predict(model, list(x = sum)), "is a function")
})

test_that("data frames and factors are inputs", {
  need_python()
  model <- small_model()
  frame <- data.frame(a = c(0.1, 0.2), b = 1:2, c = c(3, 4))
  expect_equal(predict(model, frame)$y, expected_of(as.matrix(frame)), tolerance = 1e-6, ignore_attr = TRUE)
  expect_error(predict(model, data.frame(a = 1, b = factor("u"), c = 2)), "column 'b'.*model.matrix")
  table <- make_model(make_graph(
    list(make_node("Identity", "kind", "k"), make_node("Mul", c("size", "size"), "s")), "table",
    list(make_tensor_value_info("kind", "string", list("N", 1)), make_tensor_value_info("size", "float", list("N", 1))),
    list(make_tensor_value_info("k", "string", list("N", 1)), make_tensor_value_info("s", "float", list("N", 1)))
  ))
  found <- predict(table, data.frame(size = c(2, 3), other = 0, kind = factor(c("v", "u"))))
  expect_identical(as.vector(found$k), c("v", "u"))
  expect_equal(as.vector(found$s), c(4, 9))
  expect_error(predict(table, data.frame(size = 1)), "no column 'kind'; the model's inputs are kind, size")
  expect_error(predict(table, matrix(1)), "the model has 2 inputs: give a list")
})
