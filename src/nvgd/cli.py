"""`nvgd …` at the command line."""

import sys
from collections.abc import Sequence

from nvgd.errors import InputError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 if it worked, 2 if the input was wrong, 130 after Ctrl-C."""
    import tyro

    import nvgd
    from nvgd.experiments import demo

    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"nvgd {nvgd.__version__}")
        return 0
    commands = {"demo": demo.Demo}
    try:
        config = tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="nvgd",
            description="Neural Variational Gradient Descent. `nvgd --version` prints the version.",
            args=arguments,
        )
        demo.run(config)
    except InputError as error:
        print(f"nvgd: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nvgd: interrupted; files not yet announced were not written.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
