package config

import "time"

// Admin is the listener for people and monitors, never for clients.
type Admin struct {
	// Listen is the address of health, metrics, the admin API, profiles and the page. Default "127.0.0.1:8081"; "" turns it off. It has no login: on a reachable address, anybody can drain
	// engines and read session ids.
	Listen string `toml:"listen"`
}

func defaultAdmin() Admin { return Admin{Listen: "127.0.0.1:8081"} }

// Server bounds what clients may ask of the listener.
type Server struct {
	// MaxBody is the biggest request body; beyond it the answer is 413. Default 64MB. It is a promise of memory: a declared body is allocated before it arrives, so connections × MaxBody is
	// the worst case. Too small refuses long sessions with images.
	MaxBody Size `toml:"max_body"`

	// MaxHeader is the biggest request header block; beyond it the answer is 431. Default 16KB. One buffer of this size per open connection.
	MaxHeader Size `toml:"max_header"`

	// ReadTimeout is how long a request may take to arrive. Default 30s. Too small cuts clients on slow lines in the middle of a big prompt; too big lets slow senders hold connections.
	ReadTimeout Duration `toml:"read_timeout"`

	// IdleTimeout closes client connections that are unused. Default 120s. Should be longer than that of any balancer in front, or its reused connections break.
	IdleTimeout Duration `toml:"idle_timeout"`

	// MaxConnections is how many client connections are open at once; more wait in the kernel's queue. Default 20000. Too small looks like a hanging proxy; too big runs out of file descriptors.
	MaxConnections int `toml:"max_connections"`
}

func defaultServer() Server {
	return Server{
		MaxBody: 64 << 20, MaxHeader: 16 << 10, ReadTimeout: Duration(30 * time.Second), IdleTimeout: Duration(120 * time.Second), MaxConnections: 20000,
	}
}

// Drain is the way out after SIGTERM.
type Drain struct {
	// Delay is how long new requests are still served while readiness already says no, so that balancers notice. Default 5s. Too small: 503s at each rollout.
	Delay Duration `toml:"delay"`

	// Limit is how long running answers may go on after that, while new requests get 503; then they are cut. Default 30s. Too small cuts long answers; longer than the supervisor's own limit is of no use.
	Limit Duration `toml:"limit"`
}

func defaultDrain() Drain {
	return Drain{Delay: Duration(5 * time.Second), Limit: Duration(30 * time.Second)}
}

// Timeouts are per phase. There is no timer over a whole request: a stream with traffic is never cut.
type Timeouts struct {
	// Connect bounds dialling an engine, TLS included. Default 2s. Too small calls far engines down; too big delays the step to the next engine.
	Connect Duration `toml:"connect"`

	// Write bounds sending a request to an engine without progress. Default 30s.
	Write Duration `toml:"write"`

	// FirstByte bounds the time from the request's end to the first byte of the answer. Default 0: none, since a long prefill is silent for minutes. When set, prefills beyond it are lost.
	FirstByte Duration `toml:"first_byte"`

	// BetweenBytes bounds silence inside an answer that has begun. Default 0: none. Engines that pause under load look dead when it is small.
	BetweenBytes Duration `toml:"between_bytes"`

	// ClientWrite bounds how long a client may refuse to take bytes. Default 60s. Too big lets a stuck reader hold an engine's slot; too small cuts clients that pause while a tool runs.
	ClientWrite Duration `toml:"client_write"`
}

func defaultTimeouts() Timeouts {
	return Timeouts{Connect: Duration(2 * time.Second), Write: Duration(30 * time.Second), ClientWrite: Duration(60 * time.Second)}
}

// Retry is what happens before the first byte has gone to the client. After it nothing is ever sent again.
type Retry struct {
	// Attempts is how many engines one request may try. Default 3. 1 means no second try. Each one more can be one more prefill.
	Attempts int `toml:"attempts"`

	// Wait is how long a request waits for any engine of its model to come back when none is usable. Default 5s. 0 answers 503 at once. Longer bridges restarts and fills MaxWaiting sooner.
	Wait Duration `toml:"wait"`

	// MaxWaiting is how many requests may wait like that; more get 503 at once. Default 1000. Each holds its whole body in memory.
	MaxWaiting int `toml:"max_waiting"`
}

func defaultRetry() Retry {
	return Retry{Attempts: 3, Wait: Duration(5 * time.Second), MaxWaiting: 1000}
}

// Probe is how engines are asked for their health and their facts.
type Probe struct {
	// Interval is the time between two health probes of an engine. Default 2s, at least 200ms. Smaller finds the dead sooner and costs the engine's front end; facts are asked five times
	// less often. All proxies together should stay below about 2 probes a second per engine.
	Interval Duration `toml:"interval"`

	// Timeout bounds one probe. Default 3s: SGLang's own health takes one second. Three in a row without any sign of life make an engine count as down.
	Timeout Duration `toml:"timeout"`
}

func defaultProbe() Probe {
	return Probe{Interval: Duration(2 * time.Second), Timeout: Duration(3 * time.Second)}
}

// Keepalive keeps middleboxes from cutting a stream whose first token takes minutes.
type Keepalive struct {
	// Comments is the time between two SSE comment lines sent while the engine is silent. Default 0: off, the answer is the engine's, byte for byte. When on, status 200 and headers leave at
	// the first comment, so an engine that fails later can only say so inside the stream. Half of the shortest idle timer on the way is a good value; at least 1s.
	Comments Duration `toml:"comments"`
}

// Log is what is written to standard error.
type Log struct {
	// Format is "text" or "json". Default "text".
	Format string `toml:"format"`

	// Level is "debug", "info", "warn" or "error". Default "info".
	Level string `toml:"level"`

	// Access writes one line per request. Default true. Prompts, keys and full session ids are never in it.
	Access bool `toml:"access"`
}

func defaultLog() Log { return Log{Format: "text", Level: "info", Access: true} }
