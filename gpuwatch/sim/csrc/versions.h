/* The versions that the simulated driver reports. */
#ifndef GPUWATCH_SIM_VERSIONS_H
#define GPUWATCH_SIM_VERSIONS_H

#define GWS_DRIVER_FILE_VERSION "580.00" /* of the kernel module, and at the end of libcuda's file name */
#define GWS_DRIVER_VERSION GWS_DRIVER_FILE_VERSION "-sim"
#define GWS_CUDA_VERSION 13000 /* the highest CUDA version that it supports */

#endif
