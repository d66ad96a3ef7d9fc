package quota

import (
	"fmt"
	"testing"
	"time"
)

// Two gateways and more under pressure, at limits from one to so many that all is held ahead.
func TestAnyLimitUnderPressure(t *testing.T) {
	for gateways, limits := range map[int][]int{2: {1, 7, 199, 200, 201, 400}, 5: {2, 250, 501}} {
		for _, limit := range limits {
			t.Run(fmt.Sprint(limit, " of ", gateways), func(t *testing.T) {
				inFleet(t, Options{Default: Limits{Second: limit, Minute: 100 * limit}}, func(f *fleet) {
					const seconds = 6
					var all []*gateway
					for range gateways {
						g := f.join()
						defer g.close()
						g.link.set(time.Millisecond)
						all = append(all, g)
					}
					for i, g := range all {
						time.Sleep(7 * time.Millisecond)
						g.load(max(float64(limit), 5)*(1+float64(i))/float64(gateways)*1.3, 1, seconds*time.Second)
					}
					f.running.Wait()
					f.over(0)
					f.each(time.Second, 2, seconds-1, func(i, admitted, asked int) {
						if admitted < limit*95/100 {
							t.Errorf("second %d: %d of %d were admitted, and the limit is %d", i, admitted, asked, limit)
						}
					})
				})
			})
		}
	}
}
