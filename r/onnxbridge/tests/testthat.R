library(testthat)
library(onnxbridge)

test_check("onnxbridge")
