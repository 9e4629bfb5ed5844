package main

import (
	"bufio"
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"
)

// measurer is the process that measures, as a part sees it.
type measurer struct{ input *bufio.Scanner }

func newMeasurer() measurer { return measurer{bufio.NewScanner(os.Stdin)} }

func (m measurer) send(message any) error { return json.NewEncoder(os.Stdout).Encode(message) }

// begin tells that the part is ready, and waits until it may begin.
func (m measurer) begin() error {
	if err := m.send(map[string]bool{"ready": true}); err != nil {
		return err
	}
	m.input.Scan()
	return m.input.Err()
}

// end waits until the part is to end.
func (m measurer) end() {
	for m.input.Scan() {
	}
}

// now returns milliseconds of the monotonic clock, which all processes of a machine share.
func now() float64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &time); err != nil {
		panic(err)
	}
	return float64(time.Nano()) / 1e6
}
