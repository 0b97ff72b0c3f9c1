# benchwright in a container: the package as it is released, and what its demo needs.
#
#   docker build -t benchwright .                              for processors
#   docker build -t benchwright --build-arg TORCH=cuda .       for NVIDIA GPUs: run it with --gpus all
#   docker run --rm -v "$PWD/demo-out:/out" benchwright        the job of `make demo`; the report is demo-out/run/report.html
#   docker run --rm -v "$PWD:/work" benchwright benchwright run kowl --config tiny --out out
#
# EXTRAS names others than the demo's: --build-arg EXTRAS=video,train,tables.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
ARG TORCH=cpu
ARG EXTRAS=demo
ENV PIP_CONSTRAINT=/src/constraints.txt PIP_BUILD_CONSTRAINT=/src/constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/benchwright
ENV PATH=/opt/benchwright/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
COPY . /src
RUN pip wheel --no-deps --wheel-dir /opt/wheel /src
RUN case ${TORCH} in cpu) TORCH=cpu;; cuda) TORCH=default;; *) echo "TORCH=${TORCH}: cpu or cuda" >&2; exit 1;; esac; export TORCH; cd /src && python install_torch.py
RUN pip install "$(echo /opt/wheel/*.whl)[${EXTRAS}]"
WORKDIR /work
CMD ["benchwright", "demo", "--out", "/out"]
