package providertest

import (
	"github.com/pushfleet/pushfleet/providers/sim"
	"github.com/pushfleet/pushfleet/push"
)

// Replies has every reply that the simulator knows of the vendor given to a
// delivery of its own, and checks what it is read as. proper says whether the
// provider's id in a result is as it must be.
func (p *Play) Replies(want map[sim.Reply]push.Result, mark sim.Mark, proper func(push.Result) bool) {
	p.Helper()
	for i := range 256 {
		if r := sim.Reply(i); r.Provider() == p.vendor {
			if _, has := want[r]; !has {
				p.Errorf("%s has no row in this test", r)
			}
		}
	}
	for reply, want := range want {
		ds := p.Make(1)
		mark.Reply = reply
		p.Sim.Devices().Set(p.vendor, ds[0].Device.Token, mark)
		got := p.Push(ds)[0].Result
		if !proper(got) {
			p.Errorf("%s: provider's id %q", reply, got.ProviderID)
		}
		if got = Bare(got); got != want {
			p.Errorf("%d %s:\ngot  %+v\nwant %+v", reply.Status(), reply, got, want)
		}
	}
}
