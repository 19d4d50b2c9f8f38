"""``python -m pskem`` is the command ``pskem``."""

if __name__ == "__main__":
    try:
        from pskem.cli import main

        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
