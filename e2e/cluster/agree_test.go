package cluster

import (
	"sync"
	"time"

	"github.com/warmring/warmring/e2e"
)

// until waits for all running proxies to agree to a question about their views.
func (f *fleet) until(what string, question func([]view) bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for {
		list := f.running()
		views, seen := make([]view, len(list)), make([]bool, len(list))
		var looks sync.WaitGroup
		for i, w := range list {
			looks.Go(func() {
				v, err := look(w)
				views[i], seen[i] = v, err == nil
			})
		}
		looks.Wait()
		all := true
		for _, ok := range seen {
			all = all && ok
		}
		if all && question(views) {
			return time.Since(began)
		}
		if time.Since(began) > patience {
			f.t.Fatalf("waited in vain for %s: %+v", what, views)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// whole waits until all running proxies see each other.
func (f *fleet) whole() time.Duration {
	f.t.Helper()
	return f.until("all proxies to see each other", func(views []view) bool {
		for _, v := range views {
			if !v.Ready || len(v.Members) != len(views)-1 {
				return false
			}
		}
		return true
	})
}

// settle waits until all running proxies know the same.
func (f *fleet) settle() time.Duration {
	f.t.Helper()
	return f.until("all proxies to know the same", func(views []view) bool {
		for _, v := range views {
			if v.Untold > 0 || v.Digest != views[0].Digest {
				return false
			}
		}
		return true
	})
}

// heard is how long it takes until all proxies know what one of them knows now. Each is asked by itself, so that what is measured is
// not the asking. Nothing else may happen meanwhile.
func (f *fleet) heard(from *e2e.Warmring) time.Duration {
	f.t.Helper()
	began := time.Now()
	ask := func(w *e2e.Warmring, enough func(view) bool) time.Duration {
		for time.Since(began) < patience {
			if v, err := look(w); err == nil && enough(v) {
				return time.Since(began)
			}
			time.Sleep(2 * time.Millisecond)
		}
		return patience
	}
	var mu sync.Mutex
	told := map[string]bool{} // digests that it had since it has told all of its own
	var slowest time.Duration
	var asking, telling sync.WaitGroup
	over := false
	telling.Go(func() {
		ask(from, func(v view) bool {
			mu.Lock()
			defer mu.Unlock()
			told[v.Digest] = told[v.Digest] || v.Untold == 0
			return over
		})
	})
	for _, w := range f.running() {
		if w != from {
			asking.Go(func() {
				took := ask(w, func(v view) bool {
					mu.Lock()
					defer mu.Unlock()
					return told[v.Digest]
				})
				mu.Lock()
				defer mu.Unlock()
				slowest = max(slowest, took)
			})
		}
	}
	asking.Wait()
	mu.Lock()
	over = true
	mu.Unlock()
	telling.Wait()
	if slowest >= patience {
		f.t.Fatalf("not all have heard what %s knows", from.Name)
	}
	return slowest
}
