package gossip

import (
	"sync"
	"time"
)

// budget is a token bucket over bytes sent. Safe for concurrent use.
type budget struct {
	mu      sync.Mutex
	rate    float64 // bytes per second
	burst   float64
	level   float64
	at      int64
	spent   uint64 // bytes
	refused uint64 // times that there was too little
}

// newBudget allows rate bytes per second, and at once what was saved in some time.
func newBudget(rate float64, saved time.Duration) *budget {
	burst := rate * saved.Seconds()
	return &budget{rate: rate, burst: burst, level: burst}
}

// longestDebt is for how many seconds all else waits after something that must not.
const longestDebt = 4

func (b *budget) fill(now int64) {
	if now > b.at {
		b.level = min(b.burst, b.level+b.rate*time.Duration(now-b.at).Seconds())
		b.at = now
	}
}

// take spends n bytes if they are there.
func (b *budget) take(now int64, n int) bool { return b.takeAbove(now, n, 0) }

// takeAbove spends n bytes if they are there and leave a share of the burst.
func (b *budget) takeAbove(now int64, n int, share float64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	if b.level-float64(n) < share*b.burst {
		b.refused++
		return false
	}
	b.level -= float64(n)
	b.spent += uint64(n)
	return true
}

// owe spends n bytes whether they are there or not, for what must not wait; others wait the longer.
func (b *budget) owe(now int64, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	b.level = max(b.level-float64(n), -longestDebt*b.rate)
	b.spent += uint64(n)
}

// everHas tells whether so many bytes can be saved.
func (b *budget) everHas(n int) bool { return float64(n) <= b.burst }

// available is how many bytes are there.
func (b *budget) available(now int64) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	return int(max(b.level, 0))
}

// indebted tells that more than half a second's bytes are owed: what can be found again later has to wait.
func (b *budget) indebted(now int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fill(now)
	return b.level < -b.rate/2
}

// BudgetView is how much of a budget is used.
type BudgetView struct {
	Rate    int    `json:"bytes_per_second"`
	Left    int    `json:"bytes_left"`
	Spent   uint64 `json:"bytes_spent"`
	Refused uint64 `json:"refused"` // times that something had to wait or was left out
}

func (b *budget) view() BudgetView {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BudgetView{Rate: int(b.rate), Left: int(max(b.level, 0)), Spent: b.spent, Refused: b.refused}
}
