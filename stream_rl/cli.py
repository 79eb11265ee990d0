"""The command line. Heavy imports happen inside the command that needs them, so that --help answers at once."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from stream_rl import __version__
from stream_rl.causes import cause
from stream_rl.errors import StreamRLError
from stream_rl.machine_faults import machine_fault


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code: 0 done, 1 failed, 2 bad usage or configuration."""
    arguments = parser().parse_args(argv)
    module = importlib.import_module(f"stream_rl.app.commands.{arguments.module}")
    try:
        return int(module.run(arguments))
    except BaseException as error:
        told = cause(error)
        match told:
            case StreamRLError():
                problem, code = str(told), told.exit_code
            case KeyboardInterrupt():
                return 130
            case BrokenPipeError():  # the reader of our output has gone, as `| head` does
                sys.stderr.close()
                return 0
            case _:
                fault = machine_fault(told)
                if fault is None:
                    raise  # a bug, with all it says
                problem, code = fault, 1
    sys.stderr.write(f"stream-rl {arguments.command}: {problem}\n")
    return code


def parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    top = argparse.ArgumentParser(
        prog="stream-rl",
        description="Event-driven, asynchronous, streaming RL trainer for LLM agents with rubric judges in the loop.",
        epilog="Start with `stream-rl up`: it trains the embedded default on this machine, RISED switched on.",
    )
    top.add_argument("--version", action="version", version=f"stream-rl {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    up = _command(commands, "up", "start everything and train; no CONFIG means the embedded default")
    up.add_argument("config", nargs="*", metavar="CONFIG", help="TOML files, merged left to right")
    _set(up)
    up.add_argument("--resume", metavar="RUN", help="go on with a run from its last checkpoint")
    up.add_argument("--name", metavar="N", help="folder under runs/; default: the configuration's name and the time")
    up.add_argument("--json", action="store_true", help="print every event as a line of JSON")

    check = _command(commands, "check", "preflight: everything that can be known to fail before training")
    check.add_argument("config", nargs="*", metavar="CONFIG", help="TOML files; none: the embedded default")
    _set(check)
    check.add_argument("--quick", action="store_true", help="leave out what starts an engine: log-probability parity")
    check.add_argument("--json", action="store_true", help="print facts as JSON")

    status = _command(commands, "status", "one line for each role of a run")
    status.add_argument("run", metavar="RUN", help="name or folder")
    status.add_argument("--json", action="store_true", help="print facts as JSON")

    board = _command(commands, "top", "live board of a run in the terminal; q leaves it")
    board.add_argument("run", metavar="RUN", help="name or folder")

    page = _command(commands, "page", "serve the live page of a run, also of one that is over; Ctrl-C ends it")
    page.add_argument("run", metavar="RUN", help="name or folder")
    page.add_argument("--port", type=int, default=0, help="loopback port; default: any free one")

    evaluate = _command(commands, "eval", "held-out validation of a run's last checkpoint or of a model folder")
    evaluate.add_argument("target", metavar="RUN|CHECKPOINT", help="run, checkpoint folder or model folder")
    evaluate.add_argument("--tasks", type=int, help="held-out tasks; default: as configured")
    evaluate.add_argument("--rollouts", type=int, help="rollouts of each task")
    evaluate.add_argument("--temperature", type=float, help="sampling temperature; 0 = greedy")
    _set(evaluate)
    evaluate.add_argument("--json", action="store_true", help="print facts as JSON")

    report = _command(commands, "report", "what happened, where the time went, plots")
    report.add_argument("run", metavar="RUN", help="name or folder")
    report.add_argument("--json", action="store_true", help="print facts as JSON")

    compare = _command(commands, "compare", "runs side by side: seeds grouped, intervals, cost, plots")
    compare.add_argument("runs", nargs="+", metavar="RUN", help="names or folders; seeds of one setting are one group")
    compare.add_argument("--to", metavar="DIR", default="comparison", help="tables and plots; default: comparison")
    compare.add_argument("--json", action="store_true", help="print facts as JSON")

    export = _command(commands, "export", "a run's model for Hugging Face, its rollouts as Parquet, its trace")
    export.add_argument("run", metavar="RUN", help="name or folder")
    export.add_argument("--to", metavar="DIR", help="model folder with trajectories.parquet in it; new or empty")
    export.add_argument("--only", choices=["model", "trajectories"], help="one of the two; default: both")
    export.add_argument("--checkpoint", type=int, metavar="V", help="version of the model; default: the newest")
    export.add_argument("--trace", metavar="FILE", help="a trace for Perfetto; .gz is compressed")
    export.add_argument("--json", action="store_true", help="print facts as JSON")

    simulate = _command(commands, "simulate", "predict a run without running it: step time, waits, who is busy")
    simulate.add_argument("config", nargs="*", metavar="CONFIG", help="TOML files; none: the embedded default")
    _set(simulate)
    source = simulate.add_mutually_exclusive_group()
    source.add_argument("--from", metavar="RUN", dest="run", help="service times of this run, by name or folder")
    source.add_argument("--profile", metavar="FILE", help="service times in a file; default: the configuration's own")
    simulate.add_argument("--updates", type=_count, metavar="N", help="updates to simulate; default: as configured")
    simulate.add_argument("--seed", type=int, metavar="N", help="of all chance; default: the configuration's")
    simulate.add_argument("--cores", type=int, metavar="N", help="shared by all roles; 0: each has its own devices")
    simulate.add_argument("--save", metavar="FILE", help="write the service times that were used, as a profile")
    simulate.add_argument("--json", action="store_true", help="print facts as JSON")

    depth = _command(commands, "depth", "run several async depths, beside their prediction, and say which to take")
    depth.add_argument("config", nargs="*", metavar="CONFIG", help="TOML files; none: the embedded default")
    _set(depth)
    depth.add_argument("--depths", default="0,1,2,4", metavar="S,S", help="async depths; default: 0,1,2,4")
    depth.add_argument("--updates", type=_count, default=24, metavar="N", help="measured in each run; default 24")
    depth.add_argument("--repeats", type=_count, default=1, metavar="R", help="runs of each depth; default 1")
    depth.add_argument("--warmup", type=int, metavar="W", help="updates left out first; default: largest depth + 1")
    depth.add_argument("--cores", type=int, metavar="N", help="shared by all roles; 0: each has its own devices")
    depth.add_argument("--name", metavar="N", help="runs are runs/N-depthS-R; default: as of `up`")
    depth.add_argument("--json", action="store_true", help="print facts as JSON")

    replay = _command(commands, "replay", "a run's decisions again, offline: another judge, selection or formula")
    replay.add_argument("run", metavar="RUN", help="name or folder")
    replay.add_argument("--recompute", action="store_true", help="ask no judge: check the run against its own ledger")
    _set(replay)
    replay.add_argument("--endpoint", metavar="URL", help='base address, or "embedded"; default: the run\'s own judges')
    replay.add_argument("--model", metavar="M", help="model name sent to the endpoint")
    replay.add_argument("--key-env", metavar="K", help="environment variable that holds the key")
    replay.add_argument("--vocabulary", metavar="FILE", help='TOML file, or "builtin"; default: the run\'s own')
    replay.add_argument("--limit", type=int, metavar="N", help="judge the first N rollouts only")
    replay.add_argument("--json", action="store_true", help="print facts as JSON")

    tune = _command(commands, "tune", "change the async depth of a running run, pause it, let it go on")
    tune.add_argument("run", metavar="RUN", nargs="?", help="name or folder; default: the newest run")
    tune.add_argument("--async-depth", type=int, metavar="S", help="updates generation may run ahead, up to max_lag")
    halt = tune.add_mutually_exclusive_group()
    halt.add_argument("--pause", dest="paused", action="store_true", default=None, help="lease nothing new")
    halt.add_argument("--go-on", dest="paused", action="store_false", default=None, help="lease again")
    tune.add_argument("--json", action="store_true", help="print facts as JSON")

    judge = _command(commands, "judge", "rule judge and judge endpoints").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    serve = judge.add_parser("serve", help="serve the embedded rule judge over HTTP")
    serve.add_argument("--host", default="127.0.0.1", help="address to bind; default 127.0.0.1")
    serve.add_argument("--port", type=int, default=8765, help="port; 0 takes any free one; default 8765")
    ping = judge.add_parser("ping", help="one real tagging: does the endpoint answer, and what is wrong if not")
    ping.add_argument("url", help="base address ending in /v1")
    ping.add_argument("--model", default="rules", help="model name sent to the endpoint")
    ping.add_argument("--key-env", default="", help="environment variable that holds the key")
    ping.add_argument("--deadline", type=float, default=30.0, help="seconds to wait; default 30")
    ping.add_argument("--json", action="store_true", help="print facts as JSON")

    attach = judge.add_parser("attach", help="ask one more endpoint in a running run")
    attach.add_argument("url", help="base address ending in /v1")
    attach.add_argument("--model", required=True, help="model name sent to the endpoint")
    attach.add_argument("--key-env", default="", help="environment variable, of the run, that holds the key")
    attach.add_argument("--concurrency", type=int, default=8, help="requests in flight at once; default 8")
    attach.add_argument("--requests-per-minute", type=int, default=0, help="default: no limit")
    attach.add_argument("--tokens-per-minute", type=int, default=0, help="default: no limit")
    attach.add_argument("--deadline", type=float, default=30.0, help="seconds for one tagging; default 30")
    attach.add_argument("--price-in", type=float, default=0.0, help="per million prompt tokens")
    attach.add_argument("--price-out", type=float, default=0.0, help="per million completion tokens")
    attach.add_argument("--tier", type=int, default=0, help="lower tiers are preferred; default 0")
    detach = judge.add_parser("detach", help="send nothing more to an endpoint; what is in flight ends in order")
    detach.add_argument("url", help="base address of the endpoint")
    endpoints = judge.add_parser("list", help="the endpoints of a running run: state, times, faults, tokens, price")
    for control in (attach, detach, endpoints):
        control.add_argument("--run", metavar="RUN", help="name or folder; default: the newest run")
        control.add_argument("--json", action="store_true", help="print facts as JSON")

    generator = _command(commands, "generator", "vLLM servers of your own, for a running run").add_subparsers(
        dest="action", metavar="ACTION", required=True
    )
    invite = generator.add_parser("attach", help="sample at one more server; docs/generators.md says how to start it")
    invite.add_argument("url", help="base address, as http://127.0.0.1:8000")
    invite.add_argument("--key-env", default="", help="environment variable, of the run, that holds the key")
    dismiss = generator.add_parser("detach", help="leave a server that was attached; its groups are rolled out again")
    dismiss.add_argument("url", help="base address of the server")
    generators = generator.add_parser("list", help="the generators of a running run: state, version, rollouts")
    for control in (invite, dismiss, generators):
        control.add_argument("--run", metavar="RUN", help="name or folder; default: the newest run")
        control.add_argument("--json", action="store_true", help="print facts as JSON")

    envs = _command(commands, "envs", "worlds").add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = envs.add_parser("list", help="worlds a configuration may name")
    listing.add_argument("--json", action="store_true", help="print facts as JSON")
    play = envs.add_parser("play", help="play one episode in the terminal")
    play.add_argument("name", help="world")
    play.add_argument("--split", choices=["train", "held_out"], default="train", help="default: train")
    play.add_argument("--index", type=int, default=0, help="task number; default 0")
    check = envs.add_parser("check", help="a player through many tasks in worker processes; or a proof of your data")
    check.add_argument("name", help="world")
    check.add_argument("--tasks", type=_count, default=100, metavar="N", help="tasks to play; default 100")
    check.add_argument("--player", choices=["random", "scripted"], default="random", help="default: random")
    check.add_argument("--split", choices=["train", "held_out"], default="train", help="default: train")
    check.add_argument("--parallel", type=_count, default=8, metavar="N", help="episodes at once; default 8")
    check.add_argument("--max-turns", type=_count, default=50, metavar="N", help="steps of one episode; default 50")
    check.add_argument("--seed", type=int, default=0, help="of the player's chance and the world's; default 0")
    check.add_argument("--gold", action="store_true", help="replay the gold solutions in --data instead")
    check.add_argument("--transcripts", metavar="FILE", help="replay recorded episodes over --data instead")
    check.add_argument("--json", action="store_true", help="print facts as JSON")
    offer = envs.add_parser("serve", help="put a world behind HTTP, for the world `remote` of another run or venv")
    offer.add_argument("name", help="world")
    offer.add_argument("--host", default="127.0.0.1", help="address to bind; default 127.0.0.1")
    offer.add_argument("--port", type=int, default=8766, help="port; 0 takes any free one; default 8766")
    offer.add_argument("--key-env", default="", help="environment variable that holds the bearer token to ask for")
    offer.add_argument("--sessions", type=_count, default=256, metavar="N", help="episodes open at once; default 256")
    offer.add_argument(
        "--idle", type=float, default=900.0, metavar="S", help="end sessions unused so long; default 900"
    )
    make = envs.add_parser("make", help="make data for a world from what its package ships")
    make.add_argument("name", help="world")
    make.add_argument("folder", metavar="DIR", help="where to put it")
    make.add_argument("--games", type=_count, default=60, metavar="N", help="how many; default 60")
    make.add_argument("--seed", type=int, default=0, help="of all chance; default 0")
    make.add_argument("--json", action="store_true", help="print facts as JSON")
    setup = envs.add_parser("setup", help="make the venv of a world whose packages cannot share this one")
    setup.add_argument("name", choices=["appworld"], help="world")
    setup.add_argument("folder", nargs="?", metavar="DIR", help="the venv; default: appworld in ~/.cache/stream_rl")
    setup.add_argument("--json", action="store_true", help="print facts as JSON")
    for working in (check, offer):
        working.add_argument("--workers", type=_count, default=1, metavar="N", help="worker processes; default 1")
        working.add_argument("--deadline", type=float, default=10.0, metavar="S", help="for one call; default 10")
        working.add_argument("--start", type=float, default=120.0, metavar="S", help="to be ready; default 120")
        working.add_argument("--memory", type=int, default=4096, metavar="MIB", help="of one worker; default 4096")
    for world in (play, check, offer):
        world.add_argument("--data", default="", metavar="D", help="folder or file of your data")
        world.add_argument("--option", action="append", default=[], metavar="K=V", help="option of the world")

    role = commands.add_parser("role", help="run one role; `up` does this for you")
    role.set_defaults(module="role", command="role")
    role.add_argument("role", choices=["policy", "judge", "orchestrator", "producer", "learner", "evaluate", "parity"])
    role.add_argument("--run", required=True, help="run directory")
    role.add_argument("--address", help="the orchestrator's address")
    role.add_argument("--model", help="policy folder")
    role.add_argument("--weights", help="folder of published versions")
    role.add_argument("--checkpoint", help="checkpoint folder to go on from")
    role.add_argument("--resumed", action="store_true", help="an earlier process of this run has left records")
    role.add_argument("--index", type=int, default=0, help="number among its kind")
    role.add_argument("--server", default="", help="address of the vLLM server a producer samples at")
    role.add_argument("--server-key-env", default="", help="environment variable that holds its key")
    role.add_argument("--judge", action="append", default=[], metavar="I=URL", help="address of an embedded judge")
    return top


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text)
    command.set_defaults(module="evaluate" if name == "eval" else name)
    return command


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def _set(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="A.B=C", help="override one key; repeatable"
    )


if __name__ == "__main__":
    sys.exit(main())
