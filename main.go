// Command warmring is a proxy in front of a fleet of LLM engines that keeps each
// agent session on the engine whose KV cache holds it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/warmring/warmring/config"
	"github.com/warmring/warmring/e2e/demo"
	"github.com/warmring/warmring/engines"
	"github.com/warmring/warmring/proxy"
	"github.com/warmring/warmring/ring/gossip"
)

// pooledBody is up to which size the buffers of bodies are reused.
const pooledBody = 2 << 20

// version is set by release builds (-ldflags "-X main.version=…").
var version = "dev"

const usage = `warmring keeps agent sessions on the LLM engine that has their prompts cached.

usage: warmring COMMAND [flags]

  serve     run the proxy in front of your engines
  demo      see it work: simulated engines and agents in one process, about 35 s
  check     validate a configuration file; with -probe ask the engines too
  version   print the version

"warmring COMMAND -h" tells a command's flags. The smallest configuration:

`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run is the program: exit status 0 is success, 1 a failure, 2 a wrong call.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage, indent(config.SmallestFile))
		return 2
	}
	name, rest := args[0], args[1:]
	switch name {
	case "serve":
		return serve(rest, stdout, stderr)
	case "demo":
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return demo.Run(ctx, rest, stdout, stderr)
	case "check":
		return check(rest, stdout, stderr)
	case "version", "-version", "--version":
		fs := newFlags("version", "Prints the version, the revision it was built from and the Go version.", stdout, stderr)
		if status, done := parse(fs, rest, stderr); done {
			return status
		}
		fmt.Fprintln(stdout, versionLine())
		return 0
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage, indent(config.SmallestFile))
		return 0
	}
	fmt.Fprintf(stderr, "warmring: there is no command %q; there are serve, demo, check and version\n", name)
	return 2
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ") + "\n"
}

func versionLine() string {
	v := version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += " (" + s.Value[:12] + ")"
			}
		}
	}
	return fmt.Sprintf("warmring %s %s/%s %s", v, runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// newFlags makes a command's flag set. Help that was asked for goes to stdout; a
// wrong flag is one line on stderr that names the way to the help.
func newFlags(name, about string, stdout, stderr io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {
		fs.SetOutput(stdout)
		fmt.Fprintf(stdout, "usage: warmring %s [flags]\n\n%s\n\n", name, about)
		fs.PrintDefaults()
		fs.SetOutput(io.Discard)
	}
	return fs
}

// parse reads the flags; done tells that the command ends here with status.
func parse(fs *flag.FlagSet, args []string, stderr io.Writer) (status int, done bool) {
	usage := fs.Usage
	fs.Usage = func() {} // a wrong flag needs no page
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		usage()
		return 0, true
	case err != nil:
		fmt.Fprintf(stderr, "warmring %s: %v; \"warmring %s -h\" tells the flags\n", fs.Name(), err, fs.Name())
		return 2, true
	case fs.NArg() > 0:
		fmt.Fprintf(stderr, "warmring %s: unexpected argument %q\n", fs.Name(), fs.Arg(0))
		return 2, true
	}
	return 0, false
}

func serve(args []string, stdout, stderr io.Writer) int {
	fs := newFlags("serve", "Runs the proxy until SIGTERM or SIGINT, then drains: readiness turns false, what\ncomes within drain.delay is served, later requests get 503, running answers end within\ndrain.limit. A second signal ends at once.\nSIGHUP reads the file again and applies what can change while it runs.", stdout, stderr)
	file := fs.String("config", "warmring.toml", "configuration `file`")
	if status, done := parse(fs, args, stderr); done {
		return status
	}
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP) // from the beginning: one that comes too early must not end the proxy
	defer signal.Stop(hangups)
	cfg, err := config.Load(*file)
	if err != nil {
		fmt.Fprintln(stderr, "warmring serve:", err)
		return 1
	}
	// Buffers of usual prompts are worth keeping; one of 40 MB would be kept for ever.
	fasthttp.SetBodySizePoolLimit(pooledBody, pooledBody)
	lines := proxy.NewLineWriter(stderr)
	defer lines.Close()
	handler := newLogHandler(cfg.Log, lines)
	log := slog.New(handler)
	srv, err := proxy.New(cfg, proxy.Options{Log: log, Version: versionLine()})
	if err != nil {
		fmt.Fprintln(stderr, "warmring serve:", err)
		return 1
	}
	ln, err := listen("listen", cfg.Listen)
	if err != nil {
		fmt.Fprintln(stderr, "warmring serve:", err)
		return 1
	}
	var admin net.Listener
	if cfg.Admin.Listen != "" {
		if admin, err = listen("admin.listen", cfg.Admin.Listen); err != nil {
			_ = ln.Close()
			fmt.Fprintln(stderr, "warmring serve:", err)
			return 1
		}
		log.Info("admin listener", "address", admin.Addr().String())
	}
	if err := srv.OpenCluster(); err != nil {
		fmt.Fprintln(stderr, "warmring serve:", err)
		return 1
	}
	for _, w := range cfg.Warnings() {
		log.Warn(w)
	}
	log.Info("serving", "version", versionLine(), "address", ln.Addr().String(), "engines", len(cfg.Engines))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	go func() {
		<-ctx.Done()
		stop() // from here on a second signal has its usual effect: the end
	}()
	var reloading sync.WaitGroup
	reloading.Go(func() { reload(hangups, *file, srv, func(c config.Log) { handler.set(c, lines) }) })
	defer reloading.Wait()
	defer func() {
		signal.Stop(hangups)
		close(hangups)
	}()
	if err := srv.Serve(ctx, ln, admin); err != nil {
		log.Error("serving failed", "error", err)
		return 1
	}
	log.Info("stopped")
	return 0
}

func listen(key, address string) (net.Listener, error) {
	ln, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("%s = %q: something else listens there already; choose another port", key, address)
	}
	if err != nil {
		return nil, fmt.Errorf("%s = %q: %w", key, address, err)
	}
	return ln, nil
}

// reload reads the file again at each hangup until there are no more. Hangups that come while it does are one.
func reload(hangups <-chan os.Signal, file string, srv *proxy.Server, apply func(config.Log)) {
	for range hangups {
		_ = srv.Reload(func() (*config.Config, error) { return config.Load(file) }) // it logs what came of it
		apply(srv.LogSettings())
	}
}

func check(args []string, stdout, stderr io.Writer) int {
	fs := newFlags("check", "Validates a configuration file and prints what is wrong with it, with line and\ncolumn. With -probe it asks the engines what they are.", stdout, stderr)
	file := fs.String("config", "warmring.toml", "configuration `file`")
	probe := fs.Bool("probe", false, "ask each engine for its kind, models, KV capacity and health, and for one token;\nthe exit status is 1 if one of them is not usable")
	show := fs.Bool("show", false, "print the whole configuration with its defaults, without secrets")
	if status, done := parse(fs, args, stderr); done {
		return status
	}
	cfg, err := config.Load(*file)
	if err == nil {
		_, err = proxy.New(cfg, proxy.Options{})
	}
	if err != nil {
		fmt.Fprintln(stderr, "warmring check:", err)
		return 1
	}
	if *show {
		fmt.Fprint(stdout, cfg.Redacted())
	}
	for _, w := range cfg.Warnings() {
		fmt.Fprintln(stdout, "warning:", w)
	}
	fmt.Fprintf(stdout, "%s is valid: %d engines, listening on %s\n", *file, len(cfg.Engines), cfg.Listen)
	if !*probe {
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	reports, err := engines.Check(ctx, cfg.Specs(), engines.CheckOptions{})
	if err != nil {
		fmt.Fprintln(stderr, "warmring check:", err)
		return 1
	}
	status := 0
	for _, r := range reports {
		fmt.Fprintf(stdout, "\n%s\n", strings.TrimRight(r.String(), "\n"))
		if !r.State.Usable() {
			status = 1
		}
	}
	if lines, ok := gossip.Reach(ctx, cfg.Cluster.Join); len(lines) > 0 {
		fmt.Fprintln(stdout)
		for _, line := range lines {
			fmt.Fprintln(stdout, line)
		}
		if !ok { // the others may come later: this is no reason to fail
			fmt.Fprintln(stdout, "warning: until a proxy finds the others it works alone, and sessions scatter between them")
		}
	}
	return status
}
