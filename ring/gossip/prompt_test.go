package gossip

import "github.com/warmring/warmring/ring/prompt"

// promptOf makes a prompt of so many bytes with a point every 2 KB, one that begins like no other.
func promptOf(seed uint64, bytes int) *prompt.Prompt {
	pr := &prompt.Prompt{Family: prompt.Chat, First: 1}
	h := seed*0x9e3779b97f4a7c15 + 1
	for at := 2000; at <= bytes; at += 2000 {
		h = h*6364136223846793005 + 1442695040888963407
		pr.Chain = append(pr.Chain, prompt.Point{Fingerprint: h, Bytes: int32(at), Keep: true})
	}
	last := pr.Chain[len(pr.Chain)-1]
	pr.Bytes, pr.Whole = int(last.Bytes), last.Fingerprint
	return pr
}
