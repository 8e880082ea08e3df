test_that("models are converted and verified", {
  need_python()
  folder <- tempfile()
  dir.create(folder)
  source <- file.path(folder, "small.onnx")
  save_model(small_model(), source)
  made <- onnx_convert(source, output = file.path(folder, "small17.onnx"), opset = 17)
  expect_identical(made$verdict, "PASSED")
  expect_true(file.exists(made$files))
  expect_identical(made$outputs$output, c("y", "k"))
  expect_true(all(made$outputs$passed))
  verified <- onnx_verify(source, made$files)
  expect_identical(attr(verified, "verdict"), "PASSED")
  expect_identical(nrow(verified), 2L)
  expect_identical(nrow(onnx_check(source)), 0L)
  expect_identical(onnx_inspect(source)$inputs[[1]]$name, "x")
  older <- onnx_opset(source, 13, file.path(folder, "small13.onnx"))
  expect_output(print_readable(older), 'opset_import: \\["" : 13\\]')
})

test_that("errors are conditions with onnxbridge's messages", {
  need_python()
  expect_error(onnx_convert("nowhere.onnx", output = "x.onnx"), "nowhere.onnx: no such file", class = "onnxbridge_usage_error")
  expect_error(load_from_file("nowhere.onnx"), class = "onnxbridge_error")
  damaged <- tempfile(fileext = ".onnx")
  writeLines("no model", damaged)
  caught <- tryCatch(load_from_file(damaged), onnxbridge_error = function(e) e)
  expect_s3_class(caught, "error")
  expect_true(caught$exit_code %in% c(2L, 4L))
  expect_error(onnx_verify(damaged, damaged), class = "onnxbridge_error")
})

test_that("a model that computes something else is a failure", {
  need_python()
  other <- make_model(make_graph(
    list(make_node("Tanh", "x", "y")), "t", list(make_tensor_value_info("x", "float", list(2))),
    list(make_tensor_value_info("y", "float", list(2)))
  ))
  same <- make_model(make_graph(
    list(make_node("Sigmoid", "x", "y")), "t", list(make_tensor_value_info("x", "float", list(2))),
    list(make_tensor_value_info("y", "float", list(2)))
  ))
  found <- onnx_verify(other, same)
  expect_identical(attr(found, "verdict"), "FAILED")
  expect_false(any(found$passed))
})

test_that("a Python without onnxbridge is explained", {
  old <- options(onnxbridge.python = "/nowhere/python")
  on.exit(options(old))
  expect_error(onnx_sitrep(), "/nowhere/python has no onnxbridge .*pip install onnxbridge", class = "onnxbridge_missing_python_error")
})

test_that("calls by reticulate give the same", {
  need_python()
  skip_if_not_installed("reticulate")
  skip_if(Sys.getenv("ONNXBRIDGE_TEST_RETICULATE") == "", "reticulate is tried where ONNXBRIDGE_TEST_RETICULATE is set")
  model <- small_model()
  x <- matrix(rnorm(6), 2)
  by_process <- predict(model, x)
  old <- options(onnxbridge.reticulate = TRUE)
  on.exit(options(old))
  expect_identical(predict(model, x), by_process)
  expect_error(predict(model, matrix(0, 2, 4)), "expects \\[N, 3\\]")
})
