package workload

import "time"

// BytesPerToken is the measure of all token counts of this package, and of the simulated engines' built-in tokenizer.
const BytesPerToken = 4

// Range is drawn from evenly, both ends included.
type Range struct{ Min, Max int }

// Span is a Range of time.
type Span struct{ Min, Max time.Duration }

// Spec describes a workload. Zero fields take the defaults of a scaled-down fleet of coding agents.
type Spec struct {
	Seed uint64 // all sizes, texts and ids follow from it

	// Salt begins every head and changes every id: workloads that differ in nothing else have the same sizes and share
	// no text, so that one does not warm the caches for the other.
	Salt string

	Model   string   // default "sim"
	Clients []Client // who the sessions belong to, dealt in turn; default Clients()

	Sessions  int // default 28; forks and sub-agents come on top
	Forks     int // so many sessions, evenly spread, are continued in another way from their middle; negative: none; default a sixth
	SubAgents int // so many others spawn two sub-agents and wait for them; negative: none; default a tenth
	Long      int // so many others have one tool result of Huge tokens; negative: none; default a tenth

	Turns Range // default 9 to 16

	// Tokens of the parts of prompts.
	Head   Range // tools and system prompt, one size per client; default 2,800 to 3,200
	First  Range // first user message; default 2,500 to 7,500, skewed to the small end
	More   Range // what a tool or a person adds per turn; default 200 to 1,500, skewed to the small end
	Huge   Range // default 9,000 to 14,000
	Answer Range // an agent's own line, also the limit of tokens that is asked for; default 8 to 28

	Begin Span // when sessions begin; default 0 to 1.5 s
	Tool  Span // pause before a turn that carries a tool's result; default 30 to 250 ms
	Human Span // pause before a turn that a person wrote, one in four; default 0.4 to 1.4 s
}

func (s Spec) withDefaults() Spec {
	count := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
		*v = max(*v, 0)
	}
	tokens := func(r *Range, low, high int) {
		if *r == (Range{}) {
			*r = Range{low, high}
		}
	}
	span := func(r *Span, low, high time.Duration) {
		if *r == (Span{}) {
			*r = Span{low, high}
		}
	}
	if s.Model == "" {
		s.Model = "sim"
	}
	if len(s.Clients) == 0 {
		s.Clients = Clients()
	}
	count(&s.Sessions, 28)
	count(&s.Forks, (s.Sessions+5)/6)
	count(&s.SubAgents, (s.Sessions+9)/10)
	count(&s.Long, (s.Sessions+9)/10)
	tokens(&s.Turns, 9, 16)
	tokens(&s.Head, 2_800, 3_200)
	tokens(&s.First, 2_500, 7_500)
	tokens(&s.More, 200, 1_500)
	tokens(&s.Huge, 9_000, 14_000)
	tokens(&s.Answer, 8, 28)
	span(&s.Begin, 0, 1500*time.Millisecond)
	span(&s.Tool, 30*time.Millisecond, 250*time.Millisecond)
	span(&s.Human, 400*time.Millisecond, 1400*time.Millisecond)
	return s
}
