"""``python -m gpuwatch``."""

from gpuwatch.cli.start import main

if __name__ == "__main__":
    main()
