package lane

// length finds out whether a prompt's slices are too short. What an engine's front end takes to read a prefix grows with the
// prefix, and short turns, from which the fixed part of a request is learned, may tell nothing of that. Slices that are sized
// by their time alone then shrink, as most of it is not work, and a prompt of 150k tokens takes three times as long at 5 µs
// a token of reading (simulated). So where a slice seems to do less than two thirds of what its engine could in its time, the next one
// is twice as long, to see; and if that one did much more for its time, the later ones stay so. Time that goes to the work
// itself, because later tokens cost more than believed, does not get better by it.
type length struct {
	least  int     // tokens of the next slice at least; 0 = whatever its time says
	was    int     // the same before the trial under way
	trial  bool    // the slice in flight is one
	before float64 // tokens per ns of the one before it
	best   float64 // fresh tokens/s of the best slice so far, as if at the beginning of the prompt
	wait   uint8   // slices until the next trial
}

const (
	// longPrefix is from how many tokens on reading a prefix may take a good part of a slice: a quarter of a second at 8 µs a token.
	longPrefix = 32_768
	// untilNextTrial is for how many slices a trial that did not pay is the last one.
	untilNextTrial = 4
)

// learn takes a slice up to so many tokens of a prompt that was meant to compute so many of them: tokens per ns over all of
// its time, and the pace as if at the prompt's beginning; also the rate that the caller knows of undisturbed prefills, or 0, and
// whether slices may become longer.
func (l *length) learn(cut, meant int, rate, pace, known float64, mayGrow bool) {
	l.best = max(l.best, pace)
	switch {
	case l.trial:
		l.trial = false
		if 6*rate >= 7*l.before { // at least a quarter of the slice before was not work
			l.least = meant
			return
		}
		l.least, l.wait = l.was, untilNextTrial
	case l.wait > 0:
		l.wait--
	case mayGrow && cut >= longPrefix && 3*pace < 2*max(l.best, known):
		l.was, l.before, l.trial = l.least, rate, true
		l.least = 2 * meant
	}
}
