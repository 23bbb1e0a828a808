package local

import (
	"bufio"
	"testing"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node"
)

// TestElasticBesideGangAtStart: what may grow, and has saved its work, is told to the next server, which enters all that runs before any of it grows: nothing
// that ran is ended, and what has grown is no workload that waits.
func TestElasticBesideGangAtStart(t *testing.T) {
	s := newSite(t, nil)
	elastic, gang := spec("0.5", "exec sleep 1000"), spec("0.5", "exec sleep 1000")
	elastic.Name, elastic.Replicas = "elastic", api.Replicas{Min: 1, Max: 3}
	gang.Name, gang.Replicas = "gang", api.Replicas{Min: 2, Max: 2}
	for name, share := range map[string]string{"one": "1", "half": "0.5"} { // so that the elastic one runs first, and grows after the gang has begun
		asked := spec(share, "exec sleep 1000")
		asked.Name = name
		s.submit(asked)
		s.running(name)
	}
	s.submit(elastic)
	s.running("elastic")
	s.submit(gang)
	for _, name := range []string{"one", "half"} {
		if _, err := s.Stop(t.Context(), me, name, 0); err != nil {
			t.Fatal(err)
		}
		s.ended(name)
	}
	all := []string{"elastic", "elastic-1", "gang", "gang-1"}
	s.awaitRunning(all...)
	if _, err := s.Checkpoint(t.Context(), me, "elastic"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s.restart()
		if live := s.live(); len(live) != len(all) {
			t.Fatalf("there are %v", live)
		}
		s.awaitRunning(all...)
	}
	if _, err := s.Stop(t.Context(), me, "gang", 0); err != nil {
		t.Fatal(err)
	}
	s.awaitRunning("elastic", "elastic-1", "elastic-2")
}

// TestStoppedReplicaLosesItsDevice: the device is lost of a replica that its user is stopping: the others run on, as they do where it is only stopped.
func TestStoppedReplicaLosesItsDevice(t *testing.T) {
	s := newSite(t, nil)
	g := newGates(t, 2)
	asked := spec("1", g.program())
	asked.Replicas = api.Replicas{Min: 2, Max: 2}
	guests(s, asked)
	s.awaitRunning("guest", "guest-1")
	s.prints("guest", "guest-1")
	lost := s.running("guest-1")
	if _, err := s.Stop(t.Context(), me, "guest-1", api.Duration(maxGrace)); err != nil {
		t.Fatal(err)
	}
	device := lost.Status.Grants[0]
	s.agent.notices <- node.Notice{Kind: node.DeviceDown, Device: device.Device, Reason: "it is gone"}
	s.heard("the device is down", func() bool {
		devices, err := s.Devices(t.Context())
		return err == nil && devices[device.DeviceIndex].Health == api.Down
	})
	g.open(1)
	if status := s.ended(lost.UID).Status; status.Outcome != api.Stopped {
		t.Errorf("what was stopped ended with %+v", status)
	}
	s.awaitRunning("guest")
}

// TestAttachedReplicasLoseTheirClientMeanwhile: where a client does not come back to a server that began anew, what is left of its workload is told so, also
// where the first has ended before.
func TestAttachedReplicasLoseTheirClientMeanwhile(t *testing.T) {
	s := newSite(t, func(c *Config) { c.AttachGrace = 100 * time.Millisecond })
	asked := spec("0.25", `echo up; read x; exit 3`)
	asked.Name, asked.Attach = "here", true
	asked.Roles = []api.Role{{Name: "worker", Replicas: api.Replicas{Min: 2, Max: 2}, Share: spec("0.5", "").Share, Command: []string{"sh", "-c", `trap 'exit 9' HUP; echo up; while :; do sleep 1000 & wait; done`}}}
	work := s.submit(asked)
	conn, feed, out := s.attach(work.UID)
	if got := heardLines(t, bufio.NewReader(out), 3); got != "up, up, up" {
		t.Errorf("they say %q", got)
	}
	_, _ = feed.WriteString("\n")
	s.ended(work.UID)
	s.awaitRunning("here-worker-0", "here-worker-1")
	if err := s.Host.Close(); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	s.open()
	for _, name := range []string{"here-worker-0", "here-worker-1"} {
		if status := s.ended(name).Status; status.ExitCode == nil || *status.ExitCode != 9 {
			t.Errorf("%s ended with %+v", name, status)
		}
	}
}
