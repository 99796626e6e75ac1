"""``python -m gpuwatch``."""

from gpuwatch.cli.entry_point import main

if __name__ == "__main__":
    main()
