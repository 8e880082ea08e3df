from onnxbridge.hub.ir.unique_name import free_name, unique_name


def test_a_free_name_stays_and_is_taken_from_then_on():
    taken = {"y", "y_1"}
    assert [unique_name(name, taken) for name in ("x", "x", "y", "x")] == ["x", "x_1", "y_2", "x_2"]
    assert taken == {"x", "x_1", "x_2", "y", "y_1", "y_2"}


def test_numbers_start_where_the_caller_wants_them():
    assert free_name("Block", {"Block", "Block2"}.__contains__, first=2, separator="") == "Block3"
    assert free_name("Block", set().__contains__, first=2, separator="") == "Block"
