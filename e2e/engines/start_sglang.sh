#!/usr/bin/env bash
# start_sglang.sh VENV MODEL_DIR PORT CORE [server options]: a real SGLang on one CPU core. Ready after 55-100 s.
# VENV was made with: uv pip install --override sglang/overrides.txt -r sglang/requirements.txt; uv pip install --no-deps -r sglang/torchvision.txt
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd); venv=$1 model=$2 port=$3 core=$4; shift 4
exec env -u OPENBLAS_CORETYPE SGLANG_USE_CPU_ENGINE=1 CUDA_VISIBLE_DEVICES= SGLANG_PLUGINS=sgl_cpu_attn OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 \
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/sglang/stubs" taskset -c "$core" "$venv/bin/python" -m sglang.launch_server --model-path "$model" --served-model-name tiny \
  --host 127.0.0.1 --port "$port" --device cpu --attention-backend torch_native --sampling-backend pytorch --disable-overlap-schedule \
  --load-format dummy --dtype bfloat16 --skip-server-warmup --grammar-backend none --enable-cache-report --chunked-prefill-size 512 \
  --max-total-tokens 150000 --context-length 32768 --max-running-requests 16 "$@"
