// Package sim is a simulated inference engine.
//
// Its heart is Core: a pure step machine without clock, goroutine or I/O that schedules prompts and
// decodes the way vLLM, SGLang or llama.cpp do and keeps a prefix cache of bounded size the way they
// do. A Timeline runs many cores on one virtual clock; an Engine runs one core on the real clock; a
// Server puts the engines' HTTP face (four API families, load pages, errors, faults on demand) over
// an Engine.
//
// It computes no language: answers are pseudo words derived from the prompt. It has no sampling,
// no LoRA adapters, no data parallel ranks and no KV events.
package sim
