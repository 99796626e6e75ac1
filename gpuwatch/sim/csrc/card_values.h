/* The values of a simulated card: what it reports when it idles, works, or is asked for its limits.
 * `gpuwatch sim fault set` overrides them. The figures are those of a GA102 card (capability 8.6, 82 SMs), whose
 * TensorFlow reserve is known. */
#pragma once

#define CARD_CAPABILITY_MAJOR 8
#define CARD_CAPABILITY_MINOR 6
#define CARD_MULTIPROCESSORS 82
#define CARD_CORES_PER_MULTIPROCESSOR 128
#define CARD_MEMORY_BUS_BITS 384
#define CARD_BAR1_BYTES (256ull << 20)
#define CARD_MOST_RESERVED_BYTES (256ull << 20) /* by the driver; of small cards, 1/32 */
#define CARD_MOST_CONTEXT_BYTES (320ull << 20)  /* of each process; of small cards, 1/16 */

#define CARD_POWER_IDLE_MW 22000
#define CARD_POWER_FULL_MW 320000
#define CARD_POWER_LIMIT_MW 350000 /* also the default and the highest that can be set */
#define CARD_POWER_LEAST_LIMIT_MW 100000

#define CARD_SM_CLOCK_IDLE_MHZ 210
#define CARD_SM_CLOCK_FULL_MHZ 1695
#define CARD_SM_CLOCK_MAX_MHZ 2100
#define CARD_MEMORY_CLOCK_IDLE_MHZ 405
#define CARD_MEMORY_CLOCK_FULL_MHZ 9501

#define CARD_IDLE_CELSIUS 33.0
#define CARD_FULL_CELSIUS 76.0
#define CARD_OPERATING_MAX_CELSIUS 93
#define CARD_SLOWDOWN_CELSIUS 95
#define CARD_SHUTDOWN_CELSIUS 98

#define CARD_FAN_COOL_PERCENT 30.0
#define CARD_FAN_HOT_PERCENT 75.0

#define CARD_PCIE_GENERATION 4
#define CARD_PCIE_WIDTH 16
