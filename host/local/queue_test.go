package local

import (
	"context"
	"testing"

	"github.com/aliquot-dev/aliquot/api"
)

// A bound on a part of a model's name is one on that model, and binds; one on a model that is not there is refused, unless it was there.
func TestQueueNamesModels(t *testing.T) {
	ctx := context.Background()
	model := "NVIDIA B300"
	s := newSite(t, func(config *Config) {
		for i := range config.Agent.(*fakeAgent).devices {
			config.Agent.(*fakeAgent).devices[i].Model = model
		}
	})
	set := func(models ...string) (api.Queue, error) {
		asked := api.QueueSpec{Name: "team", Quota: api.Unlimited}
		for _, model := range models {
			asked.Models = append(asked.Models, api.QueueModel{Model: model, Limit: api.QueueAmounts{Compute: new(api.Quota(1000))}})
		}
		return s.SetQueue(ctx, me, asked)
	}
	_, err := set("A10")
	refused(t, err, api.CodeInvalid, "queue team is to have bounds on model A10 and no device is of it: name one of the models there are (NVIDIA B300), or leave it out")
	_, err = set("b300", "NVIDIA B300")
	refused(t, err, api.CodeInvalid, `model "NVIDIA B300" is without a name or comes twice`)
	made, err := set("b300")
	if err != nil || len(made.Models) != 1 || made.Models[0].Model != model {
		t.Fatalf("the queue is %+v: %v", made, err)
	}
	one := spec("1", "sleep 1000")
	one.Queue, one.Preemptible = "team", true
	s.running(s.submit(one).UID)
	second := s.submit(one)
	if why, err := s.Why(ctx, second.UID); err != nil || why.Code != "quota" {
		t.Errorf("it waits for %+v (%v)", why, err)
	}
	model = "NVIDIA A10"
	s.restart()
	if made, err = set("b300", "a10"); err != nil || len(made.Models) != 2 || made.Models[0].Model != "NVIDIA A10" || made.Models[1].Model != "NVIDIA B300" {
		t.Errorf("once its model is gone the queue is %+v: %v", made, err)
	}
	_, err = set("nvidia")
	refused(t, err, api.CodeInvalid, "queue team is to have bounds on model nvidia, and that is a part of several names: write one of them, NVIDIA A10 or NVIDIA B300")
}
