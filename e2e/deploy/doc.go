// Package deploy holds what is needed to run warmring for others: an image, a compose file with simulated engines, Kubernetes
// manifests, a systemd unit, alert rules, and the README that explains how to choose and what to watch.
//
// There is no code in it but tests: that every file is well-formed and agrees with the others and with the program, and that
// the topology of the compose file, run as plain processes on the loopback interface, keeps sessions on their engines while
// proxies restart and keys change.
package deploy
