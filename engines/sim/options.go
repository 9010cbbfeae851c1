package sim

import "time"

// Mode selects whose scheduler and cache a Core imitates.
type Mode uint8

const (
	// VLLM: running requests first, then waiting ones with what is left of the token budget;
	// blocks of tokens in an LRU; a prompt's blocks are findable from the step that schedules them.
	VLLM Mode = iota
	// SGLang: one chunked prompt at a time, prefill before decode, a radix tree.
	SGLang
	// Llama: a fixed number of slots, each with one contiguous prefix (llama.cpp).
	Llama
)

// String is the mode's name as used in configuration: "vllm", "sglang", "llama".
func (m Mode) String() string {
	switch m {
	case VLLM:
		return "vllm"
	case SGLang:
		return "sglang"
	case Llama:
		return "llama"
	}
	return "unknown"
}

// Cost turns a step's work into its length:
//
//	seconds = Base + Prefill·Σ fresh·(1 + Context·context) + Decode·decodes
//
// where fresh are a chunk's tokens and context the tokens before its middle. All zero means
// DefaultCost.
type Cost struct {
	Base    float64 // seconds every step takes
	Prefill float64 // seconds per fresh prompt token at an empty context
	Context float64 // relative slowdown of a fresh token per token of context before it
	Decode  float64 // seconds per decoding request in the step
}

// DefaultCost is about a mid-size model on one large GPU: 10,000 fresh tokens/s at an empty context,
// half of that at 100k, 10 ms between tokens.
func DefaultCost() Cost {
	return Cost{Base: 0.008, Prefill: 1e-4, Context: 1e-5, Decode: 2e-4}
}

// Options describe an engine. The zero value is a vLLM of default size.
type Options struct {
	Mode Mode

	// BlockTokens is the grain of the prefix cache in tokens. Default 16; 1 for SGLang and Llama.
	BlockTokens int
	// KVTokens is the capacity of the KV cache in tokens. Default 262,144. vLLM keeps one block back.
	KVTokens int
	// MaxModelLen bounds prompt plus answer of one request. Default 131,072, at most what KVTokens holds.
	MaxModelLen int
	// MaxBatchedTokens bounds a step's tokens: vLLM's max_num_batched_tokens, SGLang's
	// chunked_prefill_size, llama.cpp's batch. Default 8192; 2048 for Llama.
	MaxBatchedTokens int
	// MaxRunning bounds the requests that hold KV at once. Default 256; for Llama the slots, default 4.
	MaxRunning int
	// LongPrefillThreshold caps what one request gets in a step (vLLM only). 0 = no cap.
	LongPrefillThreshold int
	// MixedChunk lets decodes run beside a prefill chunk (SGLang's --enable-mixed-chunk).
	MixedChunk bool
	// MaxQueued bounds SGLang's waiting queue; beyond it Submit answers ErrQueueFull. 0 = unbounded,
	// as is vLLM always.
	MaxQueued int

	Cost Cost
}

const (
	defaultKVTokens    = 262_144
	defaultMaxModelLen = 131_072
)

func (o Options) withDefaults() Options {
	set := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	block, batch, running := 16, 8192, 256
	switch o.Mode {
	case SGLang:
		block = 1
	case Llama:
		block, batch, running = 1, 2048, 4
	}
	set(&o.BlockTokens, block)
	set(&o.MaxBatchedTokens, batch)
	set(&o.MaxRunning, running)
	set(&o.KVTokens, defaultKVTokens)
	set(&o.MaxModelLen, defaultMaxModelLen)
	if most := o.usableTokens(); o.MaxModelLen > most {
		o.MaxModelLen = most
	}
	// A budget below one block could never finish a block-aligned chunk.
	if o.Mode == SGLang && o.MaxBatchedTokens < o.BlockTokens {
		o.MaxBatchedTokens = o.BlockTokens
	}
	if o.Cost == (Cost{}) {
		o.Cost = DefaultCost()
	}
	return o
}

// usableTokens is what one request alone could hold.
func (o *Options) usableTokens() int {
	blocks := o.KVTokens / o.BlockTokens
	switch o.Mode {
	case VLLM:
		blocks-- // vLLM's null block
	case Llama:
		blocks = o.KVTokens / o.MaxRunning / o.BlockTokens
	}
	if blocks < 1 {
		blocks = 1
	}
	return blocks * o.BlockTokens
}

func (c *Cost) of(batch []work) time.Duration {
	seconds := c.Base
	for i := range batch {
		w := &batch[i]
		if w.decode {
			seconds += c.Decode
			continue
		}
		n := float64(w.tokens)
		seconds += c.Prefill * n * (1 + c.Context*(float64(w.context)+n/2))
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < 1 {
		d = 1 // a step always takes time, so virtual clocks move on
	}
	return d
}
