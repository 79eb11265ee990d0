"""TensorBoard: an event file in `runs/NAME/tensorboard`, written by TensorBoard's own writer, without torch."""

from __future__ import annotations

import time

import msgspec

from stream_rl.sinks.port import Point, RunFacts

FOLDER = "tensorboard"


class TensorBoardSink:
    """`tensorboard --logdir runs` shows all runs side by side, the configuration under Text."""

    def __init__(self, facts: RunFacts) -> None:
        """Begin an event file; of a resumed run, points that will be made again are marked as void."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events = event_pb2
        self._writer = EventFileWriter(str(facts.folder / FOLDER))
        if facts.resumed_at is not None:
            again = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._writer.add_event(event_pb2.Event(wall_time=time.time(), step=facts.resumed_at, session_log=again))
            if facts.kept_evaluation:  # void, too: its step is the first of those that are made again
                self.write(facts.kept_evaluation)
        self._add_config(facts)

    def write(self, point: Point) -> None:
        """Each number is one curve; on disk when this returns, so that a page open meanwhile sees it."""
        self._add(point.step, self._scalars(point))
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _scalars(self, point: Point) -> object:
        from tensorboard.compat.proto import summary_pb2

        return summary_pb2.Summary(
            value=[summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in point.scalars.items()]
        )

    def _add_config(self, facts: RunFacts) -> None:
        from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

        text = msgspec.json.format(msgspec.json.encode(facts.config), indent=2)
        block = b"\n".join(b"    " + line for line in text.splitlines())  # Markdown shows it as it is
        tensor = tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[block])
        plugin = summary_pb2.SummaryMetadata(
            plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text"),
            data_class=summary_pb2.DATA_CLASS_TENSOR,
        )
        value = summary_pb2.Summary.Value(tag="config", tensor=tensor, metadata=plugin)
        self._add(0, summary_pb2.Summary(value=[value]))

    def _add(self, step: int, summary: object) -> None:
        self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, summary=summary))
