package gossip

// OptionError is a fault of one option, found when a member starts: what the machine has to say about it, such as an interface that
// does not exist.
type OptionError struct {
	Option string // "bind", "advertise", "interface" or "keys", as in the configuration
	Err    error  // what was tried, and why it failed
}

func (e *OptionError) Error() string { return e.Err.Error() }
func (e *OptionError) Unwrap() error { return e.Err }

// of blames an option for an error.
func of(option string, err error) error {
	if err == nil {
		return nil
	}
	return &OptionError{Option: option, Err: err}
}
