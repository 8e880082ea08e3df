"""Samples of factorizations, losses, random numbers, densities, image transforms and integer layers, one call per line."""

from __future__ import annotations

import numpy as np

from tests.frontends.mxnet.sample_list import SampleList, array


def linalg_random_image_samples():
    found = SampleList()
    s, f, p, a = found.add, found.floats, found.fractions, array
    r = found.random

    x34, x234 = f(3, 4), f(2, 3, 4)

    # linalg
    spd = a([4, 1, 0.5], [1, 5, 2], [0.5, 2, 6])
    batch = np.stack([spd, spd * 2 - 1, spd + np.eye(3, dtype=np.float32)])
    lower = np.tril(f(2, 3, 3)) + 2 * np.eye(3, dtype=np.float32)
    s("_linalg_potrf linalg_potrf _linalg_inverse linalg_inverse", batch)
    s("_linalg_potrf", batch, lower=False)
    s("_linalg_potri", np.triu(f(2, 3, 3)) + 2 * np.eye(3, dtype=np.float32), lower=False)
    s("_linalg_potri linalg_potri", np.tril(f(2, 3, 3)) + 2 * np.eye(3, dtype=np.float32))
    s("_linalg_slogdet linalg_slogdet", f(2, 3, 3), heads=2)
    s("_linalg_slogdet", spd, heads=2)
    s("_linalg_trsm linalg_trsm", lower, f(2, 3, 4))
    for transpose in (True, False):
        for rightside in (True, False):
            shape = (2, 4, 3) if rightside else (2, 3, 4)
            s("_linalg_trsm", lower, f(*shape), transpose=transpose, rightside=rightside, alpha=0.5)
            s("_linalg_trsm", np.swapaxes(lower, 1, 2).copy(), f(*shape), transpose=transpose, rightside=rightside, lower=False)
    s("_linalg_gelqf linalg_gelqf", f(2, 3, 5), heads=2)
    s("_linalg_syevd", batch, heads=2)
    s("_linalg_maketrian linalg_maketrian", f(2, 6))
    s("_linalg_maketrian", f(2, 3), offset=1)
    s("_linalg_maketrian", f(6), offset=-1)
    s("_linalg_maketrian", f(6), lower=False)

    # loss
    labels = a([1, 2, 2, 0], [3, 0, 0, 0])
    s("CTCLoss ctc_loss _contrib_CTCLoss _contrib_ctc_loss", f(7, 2, 5), labels)
    s("CTCLoss", f(7, 2, 5), labels - 1, blank_label="last")
    s("CTCLoss", f(7, 2, 5), labels, a(7, 4), use_data_lengths=True)
    s("CTCLoss", f(7, 2, 5), a([1, 2, 1, 1], [3, 3, 1, 2]), a(7, 6), a(4, 2), use_data_lengths=True, use_label_lengths=True)
    s("CTCLoss", f(7, 2, 5), a([1, 2, 1, 1], [3, 3, 1, 2]), a(3, 2), use_label_lengths=True)

    # random
    like = "uniform_like normal_like exponential_like gamma_like poisson_like negative_binomial_like"
    s(" ".join(f"_random_{n}" for n in [*like.split()[:5], "generalized_negative_binomial_like"]), x34, scatter=True)
    s("_random_negative_binomial_like", x34, k=3, p=0.4, scatter=True)
    s("_random_exponential random_exponential _random_poisson random_poisson", lam=3.0, shape=(30, 4), scatter=True)
    s("_random_gamma random_gamma", alpha=0.6, beta=2.0, shape=(30, 4), dtype="float64", scatter=True)
    s("_random_negative_binomial random_negative_binomial", k=3, p=0.4, shape=(30, 4), scatter=True)
    s("_random_generalized_negative_binomial random_generalized_negative_binomial", mu=3.0, alpha=0.4, shape=(9,), scatter=True)
    s("_random_randint random_randint", low=-3, high=9, shape=(30, 4), dtype="int64", scatter=True)
    s("_sample_uniform sample_uniform", a(0, 1), a(2, 9), shape=(3, 4), scatter=True)
    s("_sample_normal sample_normal _sample_gamma sample_gamma", a(1, 2), a(2, 9), shape=(30,), scatter=True)
    s("_sample_negative_binomial sample_negative_binomial", a(1, 2), p(2), shape=(30,), scatter=True)
    s("_sample_generalized_negative_binomial sample_generalized_negative_binomial", a(1, 2), p(2), shape=(30,), scatter=True)
    s("_sample_exponential sample_exponential _sample_poisson sample_poisson", a(1, 2), shape=(30,), scatter=True)
    s("_sample_normal", x34, p(3, 4), scatter=True)
    s("_sample_multinomial sample_multinomial", a([0.2, 0.3, 0.5], [0.5, 0.5, 0]), shape=(30, 2), scatter=True)
    s("_sample_multinomial", a([0.2, 0.3, 0.5], [0.5, 0.5, 0]), shape=(30,), get_prob=True, heads=2, scatter=True)
    s("_shuffle shuffle", x34, scatter=True)

    # densities
    both = "_random_pdf_{0} random_pdf_{0}"
    for is_log in (False, True):
        s(both.format("uniform"), p(2, 5), a(0, 0), a(1, 3), is_log=is_log)
        s(both.format("normal"), f(2, 5), f(2), p(2), is_log=is_log)
        s(both.format("gamma"), p(2, 5), p(2) + 2, p(2), is_log=is_log)
        s(both.format("exponential"), p(2, 5), p(2), is_log=is_log)
        s(both.format("poisson"), a([0, 1, 2], [3, 4, 9]), a(1, 3), is_log=is_log)
        s(both.format("negative_binomial"), a([0, 1, 2], [3, 4, 9]), a(1, 3), a(0.3, 0.6), is_log=is_log)
        s(both.format("generalized_negative_binomial"), a([0, 1, 2], [3, 4, 9]), a(1, 3), a(0.3, 0.6), is_log=is_log)
        s(both.format("dirichlet"), a([[0.2, 0.8], [0.6, 0.4]], [[0.1, 0.9], [0.5, 0.5]]), a([1, 2], [3, 4]), is_log=is_log)

    # image transforms
    photo = r.randint(0, 256, (6, 8, 3)).astype(np.uint8)
    s("_image_to_tensor", photo)
    s("_image_to_tensor", f(2, 6, 8, 3))
    s("_image_normalize", f(3, 4, 5), mean=(0.1, 0.2, 0.3), std=(2, 3, 4))
    s("_image_normalize", f(2, 3, 4, 5), mean=0.5, std=2)
    s("_image_crop", photo, x=1, y=2, width=4, height=3)
    s("_image_flip_left_right _image_flip_top_bottom", photo)
    s("_image_adjust_lighting", f(4, 5, 3), alpha=(0.1, -0.2, 0.3))
    s("_image_adjust_lighting", photo, alpha=(0.5, -1.2, 0.9))
    s("_image_resize", f(6, 8, 3), size=(5, 9))
    s("_image_resize", f(2, 6, 8, 3), size=12)
    s("_image_resize", f(6, 8, 3), size=4, keep_ratio=True)
    s("_image_resize", photo, size=(4, 3), interp=0)

    # sums over several arrays
    s("all_finite", a(1, 2, 3))
    s("multi_all_finite", a(1, 2, 3), a(1, np.inf), num_arrays=2)
    s("multi_sum_sq", x34, x234, num_arrays=2)
    return found
