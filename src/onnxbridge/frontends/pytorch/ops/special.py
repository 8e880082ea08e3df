"""Special functions of the error and gamma function families, computed in double precision."""

from onnxbridge.frontends.pytorch.float64_rules import in_float64
from onnxbridge.frontends.pytorch.ops import rule
from onnxbridge.hub.decompositions.special import error_functions, gamma

rule("aten::erfc", "aten::special_erfc")(in_float64(error_functions.erfc))
rule("aten::special_erfcx")(in_float64(error_functions.erfcx))
rule("aten::erfinv", "aten::special_erfinv")(in_float64(error_functions.erfinv))
rule("aten::special_ndtri")(in_float64(error_functions.ndtri))
rule("aten::lgamma", "aten::special_gammaln")(in_float64(gamma.log_gamma))
rule("aten::digamma", "aten::special_digamma", "aten::special_psi")(in_float64(gamma.digamma))
rule("aten::special_zeta", "aten::special_zeta.other_scalar", "aten::special_zeta.self_scalar")(
    in_float64(gamma.zeta, "self", "other")
)
rule("aten::igamma", "aten::special_gammainc")(
    in_float64(lambda op, a, x: gamma.incomplete_gamma(op, a, x, upper=False), "self", "other")
)
rule("aten::igammac", "aten::special_gammaincc")(
    in_float64(lambda op, a, x: gamma.incomplete_gamma(op, a, x, upper=True), "self", "other")
)


@rule("aten::polygamma", "aten::special_polygamma")
def polygamma(op, n, self):
    return in_float64(lambda op, x: gamma.polygamma(op, n, x))(op, self)
