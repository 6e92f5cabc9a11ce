package generator

import "math/big"

var (
	firstNames = []string{"Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"}
	lastNames  = []string{"Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"}
	cities     = []string{"Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"}
	states     = []string{"AZ", "CA", "ID", "OR", "WA", "WY"}
)

// Half of the bids use one of four channels, the others one of ten thousand.
const (
	coldChannels = 10_000
	coldName     = "channel-"
	coldURL      = "https://www.nexmark.com/item?channel="
)

// hotChannels holds the encoded name and address of each hot channel.
var hotChannels = func() (out [4][]byte) {
	for i, name := range []string{"Apple", "Google", "Facebook", "Baidu"} {
		out[i] = str(str(nil, name), "https://www.nexmark.com/"+name)
	}
	return out
}()

const priceShift = 20

// prices[i] is 100 · 10^(6i/1024) · 2^priceShift, rounded down, for i = 0 … 1024:
// the 512th root of 1000 and its powers, in integers of 256 bits.
var prices = func() (out [1025]uint64) {
	const precision = 256
	root := new(big.Int).Lsh(big.NewInt(1000), precision*2)
	one := new(big.Int).Lsh(big.NewInt(1), precision)
	root.Sqrt(root) // 1000^(1/2), scaled by 2^precision
	for range 8 {   // … ^(1/512)
		root.Sqrt(root.Mul(root, one))
	}
	v := new(big.Int).Mul(one, big.NewInt(100))
	for i := range out {
		out[i] = new(big.Int).Rsh(v, precision-priceShift).Uint64()
		v.Rsh(v.Mul(v, root), precision)
	}
	return out
}()
