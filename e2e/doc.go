// Package e2e holds black-box tests over the built binary, and the harness that they stand on: real engines (vLLM,
// SGLang and llama.cpp on the CPU), real clients (openai-python, openai-node, the agent pi) and the proxy, each a process of its own
// that is started on a free loopback port, watched, and ended with all its children.
//
// The harness (the files without _test) knows nothing of the proxy's insides: it speaks HTTP, reads Prometheus text and
// answers errors instead of failing tests, so that benchmarks can use it too. Nothing in here leaves the loopback
// interface, and every loop is bounded in count and in time.
//
// Real parts are installed by the script install beside this file, below the folder Home names. A test whose part is
// absent is skipped with that reason, or fails where WARMRING_E2E=require is set. A part that is there is always driven.
//
// Limits: starting a real vLLM takes 35 to 75 s and 4 GB, so tests share engines and keep apart by what their prompts say;
// the tiny model's weights are random, so its answers mean nothing and only end at max_tokens. Unix only where it matters:
// elsewhere the harness compiles, but children of children may stay behind. Real vLLM and SGLang need Linux (taskset).
package e2e
