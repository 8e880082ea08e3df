"""Recognition of LSTM, GRU and RNN in loops."""
