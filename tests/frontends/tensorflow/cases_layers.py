# ruff: noqa: E501  one operator per line
"""Samples of fused recurrent cells, projective transforms and audio."""

from __future__ import annotations

import numpy as np

from tests.frontends.tensorflow.samples import S, f32, fed, i32, unit

_peepholes = {"wci": unit(4), "wcf": unit(4), "wco": unit(4)}
_lstm = {"cs_prev": unit(2, 4), "h_prev": unit(2, 4), "w": unit(7, 16), "b": unit(16), **_peepholes}
for _peephole in (False, True):
    S("LSTMBlockCell", x=unit(2, 3), **_lstm, use_peephole=_peephole, cell_clip=0.4)
    S("BlockLSTM", x=unit(5, 2, 3), seq_len_max=np.int64(5), **_lstm, use_peephole=_peephole)
    S("BlockLSTMV2", x=unit(5, 2, 3, dynamic=(0, 1)), seq_len_max=fed(3, np.int64), **_lstm, use_peephole=_peephole, outputs=(1, 6))
S("BlockLSTM", x=unit(2, 2, 3), seq_len_max=np.int64(0), **_lstm, outputs=(1, 6), label="no steps")
for _op in ("BlockLSTM", "BlockLSTMV2"):
    S(_op, x=unit(5, 2, 3, dynamic=(0, 1)), seq_len_max=fed(4, np.int64), **_lstm, use_peephole=True, cell_clip=0.0, outputs=(6,), label="LSTM")
S("GRUBlockCell", x=unit(2, 3), h_prev=unit(2, 4), w_ru=unit(7, 8), w_c=unit(7, 4), b_ru=unit(8), b_c=unit(4))
_transforms = fed([[1.1, 0.2, -1, -0.1, 0.9, 1.5, 0.01, -0.02], [0.5, 0, 2, 0.1, -1, 9, 0, 0.03]])
for _mode in ("CONSTANT", "REFLECT", "WRAP", "NEAREST"):
    for _interpolation in ("NEAREST", "BILINEAR"):
        S("ImageProjectiveTransformV3", images=f32(2, 5, 6, 3), transforms=_transforms, output_shape=[7, 4], fill_value=np.float32(0.5), interpolation=_interpolation, fill_mode=_mode)
    S("ImageProjectiveTransformV2", images=i32(2, 5, 6, 1, dynamic=(1, 2)), transforms=_transforms, output_shape=fed([7, 4], np.int32), interpolation="BILINEAR", fill_mode=_mode)
S("AudioSpectrogram", input=unit(90, 2), window_size=20, stride=7)
S("AudioSpectrogram", input=unit(90, 1, dynamic=(0,)), window_size=32, stride=8, magnitude_squared=True)
S("AudioSpectrogram", input=unit(9, 1), window_size=20, stride=7, label="too short")
S("Mfcc", spectrogram=f32(2, 5, 257, low=0, high=4), sample_rate=np.int32(16000))
S("Mfcc", spectrogram=f32(1, 3, 129, low=0, high=4), sample_rate=np.int32(8000), upper_frequency_limit=3900.0, lower_frequency_limit=0.0, filterbank_channel_count=12, dct_coefficient_count=12)
