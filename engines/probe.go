package engines

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const (
	factsEvery = 5                      // health probes between two readings of models and metrics, by the proxy that reads them
	restless   = time.Second            // between two probes of an engine that is not Ready
	leastPause = 500 * time.Millisecond // between two probes, whatever asks for one, for each request of the one before: at most 2 a second (C092)
	mostPause  = time.Second            // who asks for a probe waits no longer: so often are facts read again at most
	healthGone = 30                     // after so many rounds on the list of models, the missing health page is tried again
)

// prober is the goroutine of one engine, and owns what only that needs.
type prober struct {
	e      *Engine
	opt    *FleetOptions // that client was made with
	client *client

	noHealth   int // rounds left in which the health page counts as missing
	sources    sources
	settled    bool // kind and sources are known
	lastRound  time.Time
	lastSent   uint64 // requests in the last round
	lastModels time.Time
	listed     bool // this round has read the list of models
}

func newProber(e *Engine) *prober {
	return &prober{e: e, opt: e.fleet.options(), client: newClient(e)}
}

// follow takes over what a reload says of the engine and of probing.
func (p *prober) follow() {
	e, opt := p.e.latest.Load(), p.e.fleet.options()
	if e == p.e && opt == p.opt {
		return
	}
	if e != p.e {
		p.settled, p.noHealth = false, 0
	}
	client := newClient(e)
	client.sent, client.failed = p.client.sent, p.client.failed
	p.e, p.opt, p.client = e, opt, client
}

func (p *prober) run(ctx context.Context) {
	defer p.e.modelsDone() // nobody waits for a list that will not be read
	timer := time.NewTimer(p.stagger())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.e.wake:
		}
		p.follow()
		now := p.e.fleet.now()
		p.e.refreshState(now)
		if wait := p.due(now); wait > 0 {
			timer.Reset(wait)
			continue
		}
		p.e.wantProbe.Store(false)
		p.lastRound = now
		sent := p.client.sent
		p.round(ctx)
		p.lastSent = p.client.sent - sent
		timer.Reset(p.due(p.e.fleet.now()))
	}
}

// stagger spreads the first probes of a big fleet: all at once they would be as many connections.
func (p *prober) stagger() time.Duration {
	f := p.e.fleet
	return rand.N(min(time.Duration(len(f.Engines()))*2*time.Millisecond, f.options().ProbeInterval/2) + 1)
}

// due is how long until the next round, or until a state ends by itself.
func (p *prober) due(now time.Time) time.Duration {
	if p.lastRound.IsZero() {
		return 0
	}
	p.e.mu.Lock()
	state, busy := p.e.health.base, p.e.health.busy
	uneasy := state != Ready || p.e.health.silent > 0 || p.e.health.breaker.open
	p.e.mu.Unlock()
	pause := p.e.fleet.options().ProbeInterval
	if uneasy {
		pause = min(pause, restless)
	}
	if p.e.wantProbe.Load() || p.e.wantModels.Load() || state == Ready && p.e.wantFacts.Load() {
		pause = min(pause, max(leastPause, min(time.Duration(p.lastSent)*leastPause, mostPause)))
	} else {
		pause = p.jitter(pause)
	}
	wait := p.lastRound.Add(pause).Sub(now)
	if left := busy.Sub(now); left > 0 {
		wait = min(wait, left)
	}
	return max(wait, 0)
}

// jitter spreads the probes of many proxies. It depends on the round alone, so that asking twice gives the same.
func (p *prober) jitter(d time.Duration) time.Duration {
	r := rand.New(rand.NewPCG(uint64(p.lastRound.UnixNano()), uint64(len(p.e.Name)))) //nolint:gosec // spreading, not secrecy
	return d*85/100 + time.Duration(r.Int64N(int64(d)*30/100+1))
}

// round probes once and tells the engine. Facts come before the verdict: whoever hears that an engine is back hears in the same moment that its cache is empty.
func (p *prober) round(ctx context.Context) {
	defer func() {
		if p.listed { // whoever waits for the list finds it in its place
			p.listed = false
			p.e.modelsDone()
		}
	}()
	verdict, models := p.health(ctx)
	var facts *reading
	now := p.e.fleet.now()
	if ctx.Err() == nil && verdict.kind == probeReady {
		p.e.mu.Lock()
		returning, listed, last := p.e.health.base != Ready, p.e.facts.Models, p.e.facts.FactsAt
		p.e.mu.Unlock()
		if models != nil {
			listed = *models
		}
		if p.e.wantFacts.Swap(false) || returning || !p.settled || p.dueAgain(now, last) {
			facts = p.readFacts(ctx, returning, ownerOf(listed))
		}
	}
	if ctx.Err() != nil {
		return // the end of probing is no fault of the engine
	}
	p.apply(verdict, models, facts)
}

func ownerOf(models []Model) string {
	if len(models) == 0 {
		return ""
	}
	return models[0].owner
}

func (p *prober) apply(v verdict, models *[]Model, facts *reading) {
	e := p.e
	now := e.fleet.now()
	var change Change
	e.mu.Lock()
	if e.latest.Load() != e {
		models = nil // read under rules that a reload has changed meanwhile
	}
	if at := e.answeredAt.Load(); at > 0 && time.Unix(0, at).After(e.health.answered) {
		e.health.answered = time.Unix(0, at)
	}
	if models != nil {
		change |= e.setModels(now, *models)
	}
	if facts != nil {
		change |= e.setFacts(now, facts)
		e.counts.FactsRead++
	}
	if v.kind == probeReady && e.health.base == Ready {
		e.health.lost = false
	}
	e.health.probed(now, v)
	e.everReady = e.everReady || e.health.base == Ready
	change |= e.settle(now)
	e.counts.Probes, e.counts.ProbeErrors = p.client.sent, p.client.failed
	e.mu.Unlock()
	e.fleet.notify(e, change)
	e.first.Do(func() { close(e.firstProbe) }) // whoever waits for it finds that those who place turns have heard
	if facts != nil && !facts.incomplete && e.fleet.options().OnRead != nil {
		e.fleet.options().OnRead(e)
	}
}

// refreshState announces what time alone has changed: the end of Busy.
func (e *Engine) refreshState(now time.Time) {
	e.mu.Lock()
	change := e.settle(now)
	e.mu.Unlock()
	e.fleet.notify(e, change)
}

// health asks whether the engine is ready: healthy, and a model listed (C161). Where there is no health page, the list alone decides (C162).
func (p *prober) health(ctx context.Context) (verdict, *[]Model) {
	sent := p.e.fleet.now()
	listAlone := p.noHealth > 0
	if listAlone {
		p.noHealth--
	} else {
		path := p.e.HealthPath
		status, _, err := p.client.get(ctx, path, factsLimit)
		switch {
		case err != nil && !errors.Is(err, errTooBig):
			return p.client.judge(err, path, sent), nil
		case status == 404 || status == 405 || status == 501:
			p.noHealth, listAlone = healthGone, true
		case status == 401 || status == 403:
			return unauthorized(path, status, p.e), nil
		case status < 200 || status > 299:
			return verdict{kind: probeLoading, reason: fmt.Sprintf("%s answers %d", path, status)}, nil
		}
	}
	now := p.e.fleet.now()
	if !listAlone && !p.modelsDue(now) {
		return verdict{kind: probeReady}, nil
	}
	return p.models(ctx, sent, listAlone)
}
