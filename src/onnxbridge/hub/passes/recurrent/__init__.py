"""Loops over the steps of a sequence as LSTM, GRU and RNN."""
