package sim

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// checkPaged checks vLLM's block pool against what the sequences hold.
func checkPaged(t *rapid.T, c *Core) {
	p := c.sched.(*paged)
	refs := map[int32]int32{}
	for _, s := range c.live {
		for _, b := range s.blocks {
			refs[b]++
		}
		if want := (s.computed + c.opt.BlockTokens - 1) / c.opt.BlockTokens; len(s.blocks) < want {
			t.Fatalf("%s computed %d tokens in %d blocks", s.req.ID, s.computed, len(s.blocks))
		}
	}
	free := 0
	for i := p.pool.blocks[0].next; i != 0; i = p.pool.blocks[i].next {
		free++
		if p.pool.blocks[i].ref != 0 {
			t.Fatalf("block %d is free and held", i)
		}
	}
	if free != p.pool.free || free+len(refs) != len(p.pool.blocks)-1 {
		t.Fatalf("blocks are lost: %d in the free queue, %d counted, %d held, %d in all", free, p.pool.free, len(refs), len(p.pool.blocks)-1)
	}
	hashed := 0
	for i := 1; i < len(p.pool.blocks); i++ {
		b := p.pool.blocks[i]
		if b.ref != refs[int32(i)] {
			t.Fatalf("block %d has %d references, %d requests hold it", i, b.ref, refs[int32(i)])
		}
		if b.hashed {
			hashed++
		}
	}
	found := 0
	for h, i := range p.pool.byHash {
		for ; i != 0; i = p.pool.blocks[i].same {
			if b := p.pool.blocks[i]; !b.hashed || b.hash != h {
				t.Fatalf("block %d is findable under a hash it does not have", i)
			}
			found++
		}
	}
	if found != hashed {
		t.Fatalf("%d blocks have a hash, %d are findable", hashed, found)
	}
}

// checkChunked checks SGLang's tree against what the sequences hold.
func checkChunked(t *rapid.T, c *Core) {
	k := c.sched.(*chunked)
	locks := map[*radixNode]int{}
	private := 0
	for _, s := range c.live {
		private += s.held
		for n := s.node; n != nil && n != k.tree.root; n = n.parent {
			locks[n]++
		}
	}
	size, locked, leaves := 0, 0, 0
	var walk func(n *radixNode)
	walk = func(n *radixNode) {
		if n != k.tree.root {
			size += len(n.run)
			if n.lock > 0 {
				locked += len(n.run)
			}
			if n.lock != locks[n] {
				t.Fatalf("a node has %d locks, %d requests are below it", n.lock, locks[n])
			}
			_, leaf := k.tree.leaves[n]
			if leaf != (len(n.children) == 0) {
				t.Fatalf("leaf %v with %d children", leaf, len(n.children))
			}
			if leaf {
				leaves++
			}
		}
		for first, child := range n.children {
			if child.run[0] != first || child.parent != n {
				t.Fatal("a child is not where it belongs")
			}
			walk(child)
		}
	}
	walk(k.tree.root)
	if size != k.tree.size || locked != k.tree.locked || private != k.private || leaves != len(k.tree.leaves) {
		t.Fatalf("tree %d (counted %d), locked %d (%d), outside %d (%d), leaves %d (%d)",
			size, k.tree.size, locked, k.tree.locked, private, k.private, leaves, len(k.tree.leaves))
	}
	if size+private > k.cap {
		t.Fatalf("%d blocks in a cache of %d", size+private, k.cap)
	}
}

func check(t *rapid.T, c *Core) {
	switch c.sched.(type) {
	case *paged:
		checkPaged(t, c)
	case *chunked:
		checkChunked(t, c)
	}
}

// conversation draws a prompt out of few texts, so that beginnings are shared.
func conversation(t *rapid.T, most int) []uint64 {
	var ids []uint64
	for part := 0; part < 3; part++ {
		text := rapid.IntRange(0, 3).Draw(t, "text")
		n := rapid.IntRange(1, most/3).Draw(t, "tokens")
		ids = append(ids, words(text, n)...)
	}
	return ids
}

// Whatever comes, blocks are conserved, everybody ends, nothing is held afterwards, first come is first
// served, and no prompt is said to be cached whole.
func TestLawsOfTheCore(t *testing.T) {
	for _, mode := range []Mode{VLLM, SGLang, Llama} {
		t.Run(mode.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				opt := Options{
					Mode:                 mode,
					BlockTokens:          rapid.SampledFrom([]int{1, 4, 16}).Draw(t, "block"),
					MaxBatchedTokens:     rapid.IntRange(16, 64).Draw(t, "budget"),
					MaxRunning:           rapid.IntRange(1, 6).Draw(t, "running"),
					LongPrefillThreshold: rapid.SampledFrom([]int{0, 7, 16}).Draw(t, "threshold"),
					MixedChunk:           rapid.Bool().Draw(t, "mixed"),
					Cost:                 Cost{Base: 0.001},
				}
				opt.KVTokens = opt.BlockTokens * rapid.IntRange(8, 40).Draw(t, "blocks")
				if mode == Llama {
					opt.KVTokens = 200 * opt.MaxRunning
				}
				c := NewCore(opt)
				now, next := int64(0), 0
				var alive, order, admitted []string
				preempted := int64(0)
				step := func() {
					d, events := c.Step(now)
					now += int64(d)
					for _, e := range events {
						switch e.Kind {
						case Admitted:
							admitted = append(admitted, e.ID)
						case Finished, Aborted:
							alive = slices.DeleteFunc(alive, func(id string) bool { return id == e.ID })
						}
					}
					check(t, c)
				}
				t.Repeat(map[string]func(*rapid.T){
					"submit": func(t *rapid.T) {
						ids := conversation(t, min(c.opt.MaxModelLen, 300)+3)
						id := fmt.Sprint("r", next)
						next++
						if c.Submit(Request{ID: id, Prompt: HashTokens(0, c.opt.BlockTokens, ids), MaxTokens: rapid.IntRange(1, 30).Draw(t, "answer")}) == nil {
							alive, order = append(alive, id), append(order, id)
						}
					},
					"step": func(t *rapid.T) { step() },
					"abort": func(t *rapid.T) {
						if len(alive) > 0 {
							c.Abort(rapid.SampledFrom(alive).Draw(t, "victim"))
						}
					},
				})
				for i := 0; c.Live() > 0; i++ {
					if i > 20_000 {
						t.Fatalf("%d requests starve: %+v", c.Live(), c.Stats())
					}
					step()
				}
				st := c.Stats()
				if st.Used != 0 || st.Running != 0 || st.Waiting != 0 || st.WaitingFresh != 0 || len(alive) != 0 {
					t.Fatalf("something is left: %+v, alive %v", st, alive)
				}
				if preempted = st.Preempted; preempted == 0 {
					// aborted ones may be missing in between
					at := 0
					for _, id := range admitted {
						i := slices.Index(order[at:], id)
						if i < 0 {
							t.Fatalf("%s was admitted out of turn: %v", id, admitted)
						}
						at += i
					}
				}
			})
		})
	}
}

// With memory for all, a prompt finds exactly what it shares with the longest earlier one, down to a
// whole block, and never its last token.
func TestLawOfCachedTokens(t *testing.T) {
	for _, mode := range []Mode{VLLM, SGLang} {
		t.Run(mode.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				block := rapid.SampledFrom([]int{1, 8, 16}).Draw(t, "block")
				c := NewCore(Options{Mode: mode, BlockTokens: block, MaxBatchedTokens: rapid.IntRange(16, 200).Draw(t, "budget"), Cost: Cost{Base: 1}})
				now := int64(0)
				var seen [][]uint64
				for n := rapid.IntRange(2, 12).Draw(t, "requests"); n > 0; n-- {
					ids := conversation(t, 300)
					if len(seen) > 0 && rapid.Bool().Draw(t, "known") { // an earlier one again, or a beginning of it
						ids = rapid.SampledFrom(seen).Draw(t, "which")
						if len(ids) == 0 {
							ids = words(1, 1)
						}
						ids = slices.Clone(ids[:rapid.IntRange(1, len(ids)).Draw(t, "cut")])
					}
					output := words(rapid.IntRange(0, 3).Draw(t, "said"), rapid.IntRange(1, 40).Draw(t, "answer"))
					want := 0
					for _, s := range seen {
						same := 0
						for same < min(len(s), len(ids)) && s[same] == ids[same] {
							same++
						}
						want = max(want, min(same, len(ids)-1)/block*block)
					}
					c.Submit(Request{ID: "x", Prompt: HashTokens(0, block, ids), Output: output, MaxTokens: len(output)})
					for c.Live() > 0 {
						d, events := c.Step(now)
						now += int64(d)
						for _, e := range events {
							if e.Kind == Finished && e.Cached != want {
								t.Fatalf("%d tokens cached, want %d", e.Cached, want)
							}
						}
					}
					whole := append(slices.Clone(ids), output[:len(output)-1]...) // the last token is not computed
					seen = append(seen, whole[:len(whole)/block*block])
				}
			})
		})
	}
}

// plainLRU is vLLM's cache for one request at a time, written down naively.
type plainLRU struct {
	size  int
	order []uint64 // least recently freed first; 0 = a block without a hash
}

func (l *plainLRU) ask(p Prompt, block int) (hit int) {
	for hit < (p.Tokens-1)/block && slices.Contains(l.order, p.Blocks[hit]) {
		hit++
	}
	for _, h := range p.Blocks[:hit] {
		i := slices.Index(l.order, h)
		l.order = slices.Delete(l.order, i, i+1)
	}
	need := (p.Tokens+block-1)/block - hit
	l.order = l.order[need:]
	freed := slices.Clone(p.Blocks)
	slices.Reverse(freed)
	l.order = append(l.order, freed...)
	if p.Tokens%block != 0 {
		l.order = slices.Insert(l.order, 0, 0)
	}
	return hit * block
}

func TestLawOfEviction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SampledFrom([]int{4, 16}).Draw(t, "block")
		blocks := rapid.IntRange(10, 60).Draw(t, "blocks")
		c := NewCore(Options{BlockTokens: block, KVTokens: blocks * block, MaxBatchedTokens: 10_000, Cost: Cost{Base: 1}})
		model := plainLRU{order: make([]uint64, blocks-1)}
		now := int64(0)
		for n := rapid.IntRange(5, 40).Draw(t, "requests"); n > 0; n-- {
			ids := conversation(t, max(c.opt.MaxModelLen-2, 3))
			p := HashTokens(0, block, ids)
			if p.Tokens >= c.opt.MaxModelLen {
				continue
			}
			// A whole prompt's last block is computed again and stored twice; the naive list has no twins.
			if p.Tokens%block == 0 {
				ids = append(ids, 9)
				p = HashTokens(0, block, ids)
				if p.Tokens >= c.opt.MaxModelLen {
					continue
				}
			}
			want := model.ask(p, block)
			if err := c.Submit(Request{ID: "x", Prompt: p, MaxTokens: 1}); err != nil {
				t.Fatal(err)
			}
			for c.Live() > 0 {
				d, events := c.Step(now)
				now += int64(d)
				for _, e := range events {
					if e.Kind == Finished && e.Cached != want {
						t.Fatalf("%d cached, the list says %d", e.Cached, want)
					}
				}
			}
		}
	})
}
