package node

import (
	"context"
	"fmt"
	"time"

	"github.com/aliquot-dev/aliquot/api"
	"github.com/aliquot-dev/aliquot/node/page"
)

// Where nobody else wants a device the arbiter charges its holder by the holder's own word (core.h), which may be a lie. The driver's word on
// how busy the device was is held against what was charged.
const (
	whole      = time.Duration(api.WholeDevice)
	doubtLooks = 10               // looks in a row, half a minute: the driver tells of its last second or less
	doubtOver  = whole / 5        // busy beyond what was charged, mean of those looks
	doubtRest  = 10 * lookEvery   // a gap in the looks after which they begin again
	doubtFlag  = page.PolicyClock // what the arbiter is told
)

// doubt is what was seen of one device.
type doubt struct {
	at      time.Time
	charged time.Duration
	looks   int
	length  time.Duration // of the looks
	over    time.Duration // busy beyond charges; negative: less
}

// look adds a reading: how busy the driver says the device is, and what its shares were charged in all (may fall when one leaves). It
// says whether the driver has told of much more than was charged for long enough.
func (d *doubt) look(at time.Time, busy api.Milli, charged time.Duration) bool {
	length, grown := at.Sub(d.at), charged-d.charged
	d.at, d.charged = at, charged
	if length <= 0 || length > doubtRest || grown < 0 {
		d.looks, d.length, d.over = 0, 0, 0
		return false
	}
	d.looks++
	d.length += length
	d.over += length*time.Duration(busy)/whole - grown
	if d.looks < doubtLooks {
		return false
	}
	doubted := d.over > d.length*doubtOver/whole
	d.looks, d.length, d.over = 0, 0, 0
	return doubted
}

// doubtShares holds the driver's word on a device against the charges of its shares, and has those with live processes charged by the clock
// alone from now on where the two do not agree. doubts are those of earlier calls, by UUID.
func (a *Agent) doubtShares(ctx context.Context, doubts map[string]*doubt, at time.Time, uuid string, busy api.Milli, shares []Usage) {
	var charged time.Duration
	var live []string
	for _, u := range shares {
		if u.Grant.Device != uuid {
			continue
		}
		charged += u.Held
		if len(u.Processes) > 0 {
			live = append(live, u.Task)
		}
	}
	d := doubts[uuid]
	if d == nil {
		d = &doubt{}
		doubts[uuid] = d
	}
	if !d.look(at, busy, charged) {
		return
	}
	for _, uid := range live {
		if err := a.chargeByClock(ctx, uid, uuid); err != nil {
			a.log.Warn("a task could not be charged by the clock", "task", uid, "error", err)
		}
	}
}

func (a *Agent) chargeByClock(ctx context.Context, uid, uuid string) error {
	a.ops.Lock()
	defer a.ops.Unlock()
	t := a.find(uid)
	if t == nil || t.Ending {
		return nil
	}
	changed, err := t.order(a.capacity, doubtFlag)
	if err != nil || !changed {
		return err
	}
	a.notify(Notice{Kind: Doubted, Device: uuid, Task: uid, Message: fmt.Sprintf(
		"Device %s was busy for longer than its shares said they used it; task %s is charged for all the time that it holds from now on.", uuid, uid)})
	_, err = a.arbiter.request(ctx, "policy "+uid)
	return err
}
