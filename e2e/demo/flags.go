package demo

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/warmring/warmring/e2e/workload"
)

const about = `usage: warmring demo [flags]

Shows what warmring does, in about half a minute and with nothing but this
program: simulated engines with KV caches of their own, and agents with growing
sessions, forks and pauses. The same traffic goes through plain round robin
first and through warmring then; a table compares them. After that, long cold
prompts meet short turns at one engine, with lanes and without.

`

// parseFlags reads the command line; done tells that the command ends here with status.
func parseFlags(args []string, stderr io.Writer) (set settings, status int, done bool) {
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		fmt.Fprint(stderr, about)
		fs.PrintDefaults()
	}
	engines := fs.Int("engines", 4, "simulated engines, 2 to 16")
	sessions := fs.Int("sessions", 0, "agents at work at once, 2 to 500; their forks and sub-agents come on top (default 7 per engine)")
	seed := fs.Uint64("seed", 1, "of the traffic: the same seed sends the same prompts")
	proxies := fs.Int("proxies", 1, "more than 1, up to 9: the traffic goes once more through so many proxies, any of them for each\nrequest, and one of them ends and starts again meanwhile")
	keep := fs.Bool("keep", false, "leave engines and proxy running afterwards, until Ctrl-C, and print a request to try")
	alone := fs.String("engine", "", "run nothing but one simulated engine on this `address`, host:port, until Ctrl-C or SIGTERM")
	plain := fs.Bool("plain", false, "print lines now and then instead of a live table, as is done where there is no terminal")
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return set, 0, true
	case err != nil:
		return set, 2, true
	}
	wrong := func(format string, a ...any) (settings, int, bool) {
		fmt.Fprintf(stderr, "warmring demo: "+format+"\n\n", a...)
		fs.Usage()
		return set, 2, true
	}
	switch {
	case fs.NArg() > 0:
		return wrong("unexpected argument %q", fs.Arg(0))
	case *alone != "":
		other := ""
		fs.Visit(func(f *flag.Flag) {
			if f.Name != "engine" {
				other = f.Name
			}
		})
		if other != "" {
			return wrong("-engine runs one engine and no traffic: -%s has no meaning with it", other)
		}
		return settings{alone: *alone}, 0, false
	case *engines < 2 || *engines > 16:
		return wrong("-engines %d: 2 to 16 make a fleet that fits one process", *engines)
	case *proxies < 1 || *proxies > 9:
		return wrong("-proxies %d: 1 to 9", *proxies)
	case *sessions == 0:
		*sessions = 7 * *engines
	case *sessions < 2 || *sessions > 500:
		return wrong("-sessions %d: choose 2 to 500", *sessions)
	}
	return settings{
		engines: *engines, proxies: *proxies, keep: *keep, plain: *plain, liveShare: 0.75, toCompute: 9 * time.Second, longTokens: 16_000, shortTurns: 9,
		spec: workload.Spec{Seed: *seed, Sessions: *sessions, Model: modelName},
	}, 0, false
}
