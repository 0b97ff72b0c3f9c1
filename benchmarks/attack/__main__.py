"""Attack benchwright with everything that can go wrong, and count what it does not stand.

    python benchmarks/attack --quick              # about a minute; what CI runs is a part of it
    python benchmarks/attack --long --seed 1      # more than 10,000 files, 300 kills, 600 flipped bits, full disks
    python benchmarks/attack --long --parts files --only npz tar
    python benchmarks/attack --again attack-found/traceback/npz-...

Exits 1 where anything is not 0. Failing inputs are kept in ``attack-found`` (``--keep``), one folder each.
"""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from attack.campaign import main

    main()
