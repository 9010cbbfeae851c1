package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// profile drives warmring alone with each measure of the speed scenario while its CPU profile is taken.
func (b *bench) profile() error {
	if b.profiles == "" {
		return fmt.Errorf("-profiles FOLDER says where to put them")
	}
	s, err := b.stage("profile")
	if err != nil {
		return err
	}
	defer s.close()
	if err := s.startFakes(2); err != nil {
		return err
	}
	for _, p := range b.peers {
		if !strings.HasPrefix(p.name, "warmring") {
			continue
		}
		u, err := s.startPeer(p)
		if err != nil {
			return err
		}
		const seconds = 6
		for _, m := range speedMeasures(1)[:4] {
			l := m.load
			l.address, l.headers, l.total, l.limit = u.address, true, 1<<30, (seconds+1)*time.Second
			s.tell(fmt.Sprintf("set?pace=%d", m.pace))
			var wg sync.WaitGroup
			wg.Go(func() { l.run(&b.sets) })
			time.Sleep(500 * time.Millisecond)
			err := b.save(u, fmt.Sprintf("profile?seconds=%d", seconds), "cpu-"+strings.ReplaceAll(m.name, " ", ""))
			wg.Wait()
			if err != nil {
				return err
			}
		}
		if err := b.save(u, "allocs", "allocs"); err != nil {
			return err
		}
	}
	return nil
}

// saveProfile keeps heap and goroutine profiles of a warmring; other peers have none.
func (b *bench) saveProfile(u *up, name string) {
	if !strings.HasPrefix(u.name, "warmring") {
		return
	}
	for _, kind := range []string{"heap", "goroutine"} {
		if err := b.save(u, kind, name+"-"+kind); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
	}
}

func (b *bench) save(u *up, page, name string) error {
	if err := os.MkdirAll(b.profiles, 0o755); err != nil {
		return err
	}
	client := http.Client{Timeout: 30 * time.Second}
	answer, err := client.Get("http://" + u.extra + "/debug/pprof/" + page)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	f, err := os.Create(filepath.Join(b.profiles, u.name+"-"+name+".pprof"))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.ReadFrom(answer.Body)
	return err
}
