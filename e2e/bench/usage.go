package main

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// usage is what a process and its descendants have used.
type usage struct {
	cpu      float64 // seconds, user and system, since their start; in steps of 10 ms
	rss      int64   // bytes now
	peak     int64   // bytes at most since forgetPeak
	measured bool
}

// family lists pid and its descendants.
func family(pid int) []string {
	children := map[string][]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if fields := statFields(e.Name()); fields != nil {
			children[fields[1]] = append(children[fields[1]], e.Name())
		}
	}
	list := []string{strconv.Itoa(pid)}
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i]]...)
	}
	return list
}

// statFields are the fields of /proc/PID/stat from the state on, the third; nil if there is no such process.
func statFields(pid string) []string {
	if pid[0] < '0' || pid[0] > '9' {
		return nil
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
}

func usageOf(pid int) usage {
	var u usage
	for _, p := range family(pid) {
		fields := statFields(p)
		if len(fields) < 22 {
			continue
		}
		u.measured = true
		for _, f := range fields[11:13] {
			ticks, _ := strconv.ParseFloat(f, 64)
			u.cpu += ticks / 100 // USER_HZ is 100 on all that Go runs on
		}
		status, _ := os.ReadFile("/proc/" + p + "/status")
		for line := range strings.Lines(string(status)) {
			name, value, _ := strings.Cut(line, ":")
			if name != "VmRSS" && name != "VmHWM" {
				continue
			}
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if name == "VmRSS" {
				u.rss += kb << 10
			} else {
				u.peak += kb << 10
			}
		}
	}
	return u
}

// forgetPeak makes the kernel count the peaks anew.
func forgetPeak(pid int) {
	for _, p := range family(pid) {
		_ = os.WriteFile("/proc/"+p+"/clear_refs", []byte("5"), 0)
	}
}
