package ring

import "testing"

func TestASpeedIsHeardUntilItIsMeasured(t *testing.T) {
	list := []Engine{{Name: "fast", State: Ready}, {Name: "slow", State: Ready}}
	p := New(Options{})
	p.Share(1, nil)
	p.SetEngines(0, list)
	rate := func(name string) float64 { return p.rateOf(p.byName[name]) }
	before := rate("fast")
	p.HearSpeeds([]Speed{{EngineID("fast"), 50_000}, {EngineID("slow"), 0}, {EngineID("nobody"), 1000}, {EngineID("slow"), 1 << 40}})
	if rate("fast") != 50_000 || rate("slow") != before {
		t.Errorf("fast %v, slow %v", rate("fast"), rate("slow"))
	}
	if told := p.Speeds(nil); len(told) != 0 {
		t.Errorf("what was heard is told again: %v", told)
	}
	for range fewRateSamples {
		p.byName["fast"].rate.learn(10_000, 1e9)
	}
	if rate("fast") != 10_000 {
		t.Errorf("what was measured does not outweigh what was heard: %v", rate("fast"))
	}
	if told := p.Speeds(nil); len(told) != 1 || told[0] != (Speed{EngineID("fast"), 10_000}) {
		t.Errorf("told %v", told)
	}
}
