"""What programs of other machines log arrives piece by piece."""

from touchline.jobs.shipping import Logs, add_to_logs


def test_each_line_arrives_once_and_a_log_begun_anew_is_added(tmp_path):
    logs, here = Logs(), tmp_path / "run_logs"
    path = logs.path / "Player-3.log"
    for text, mode in (("one\n", "w"), ("two\n", "a"), ("", "a"), ("3\n", "w")):
        with path.open(mode) as file:
            file.write(text)
        add_to_logs(here, logs.new())
    assert (here / "Player-3.log").read_text(encoding="utf-8") == "one\ntwo\n3\n"
    assert logs.new() == {}
    logs.close()
    assert not path.exists()
