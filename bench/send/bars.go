//go:build linux

package send

// Bar is one thing that has to be reached.
type Bar struct {
	Name string  `json:"name"`
	Want float64 `json:"want"`
	Got  float64 `json:"got"`
	Met  bool    `json:"met"`
}

// What has to be reached on two cores with the simulator on the same machine.
const (
	leastRatioAPNS2  = 10 // of ours and of ours_apns, to apns2 that builds the payloads
	leastRatioH2Load = 1
	mostCPU          = 2.0     // us a push
	mostAllocations  = 0.05    // a push: what happens once a second and not once a push
	leastRate50ms    = 190_000 // 95 % of 10 x 1,000 / 50 ms
	leastRateOne50ms = 19_000  // the same of one connection
	mostMemory       = 64      // MiB
	mostGrowth       = 0.05    // from the second to the tenth minute, to either side
	leastSimRaw      = 400_000
)

// bars says which of them were reached; those that were not measured are left
// out.
func bars(r *Result) []Bar {
	all := []Bar{}
	least := func(name string, want float64, got *float64) {
		if got != nil {
			all = append(all, Bar{name, want, *got, *got >= want})
		}
	}
	most := func(name string, want float64, got *float64) {
		if got != nil {
			all = append(all, Bar{name, want, *got, *got <= want})
		}
	}
	least("ratio_ours_apns_apns2", leastRatioAPNS2, r.RatioOursAPNS)
	least("ratio_apns2", leastRatioAPNS2, r.RatioAPNS2)
	least("ratio_h2load", leastRatioH2Load, r.RatioH2Load)
	if f := r.Ours; f != nil {
		most("ours.cpu_us_per_push", mostCPU, &f.CPU)
		most("ours.allocs_per_push", mostAllocations, f.Allocations)
		most("ours.rss_mb", mostMemory, &f.RSS)
		if m := f.Memory; m != nil {
			change := max(m.Growth, -m.Growth)
			most("ours.memory.growth", mostGrowth, &change)
		}
	}
	if f := r.Ours50ms; f != nil {
		least("ours_50ms.pushes_per_second", leastRate50ms, &f.PushesPerSecond)
		most("ours_50ms.cpu_us_per_push", mostCPU, &f.CPU)
		most("ours_50ms.rss_mb", mostMemory, &f.RSS)
	}
	if f := r.OursOneConnection50ms; f != nil {
		least("ours_one_connection_50ms.pushes_per_second", leastRateOne50ms, &f.PushesPerSecond)
		most("ours_one_connection_50ms.cpu_us_per_push", mostCPU, &f.CPU)
	}
	least("sim_raw_per_second", leastSimRaw, r.SimRaw)
	return all
}
