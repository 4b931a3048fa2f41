"""timm 1.0.30's architectures with depthwise layers and at most 60 million parameters, by module of timm.models."""

ARCHITECTURES = {
    "byobnet": """
        gernet_l gernet_m gernet_s mobileone_s0 mobileone_s1 mobileone_s2 mobileone_s3 mobileone_s4 resnet51q
        resnet61q
    """,
    "coat": """
        coat_lite_medium coat_lite_medium_384 coat_lite_mini coat_lite_small coat_lite_tiny coat_mini coat_small
        coat_tiny
    """,
    "convmixer": "convmixer_1024_20_ks9_p14 convmixer_1536_20 convmixer_768_32",
    "convnext": """
        convnext_atto convnext_atto_ols convnext_atto_rms convnext_femto convnext_femto_ols convnext_nano
        convnext_nano_ols convnext_pico convnext_pico_ols convnext_small convnext_tiny convnext_tiny_hnf
        convnext_zepto_rms convnext_zepto_rms_ols convnextv2_atto convnextv2_femto convnextv2_nano convnextv2_pico
        convnextv2_small convnextv2_tiny test_convnext test_convnext2 test_convnext3
    """,
    "cpubone": """
        cpubone_b0_bfrobust cpubone_b1_bfrobust cpubone_b1_dwnorm cpubone_b2_bfrobust cpubone_b2pt5_dwnorm
        cpubone_b3 cpubone_nano cpubone_s0 cpubone_t0
    """,
    "csatv2": "csatv2 csatv2_21m",
    "cspnet": "cs3sedarknet_xdw",
    "davit": "davit_small davit_tiny",
    "edgenext": "edgenext_base edgenext_small edgenext_small_rw edgenext_x_small edgenext_xx_small",
    "efficientformer_v2": "efficientformerv2_l efficientformerv2_s0 efficientformerv2_s1 efficientformerv2_s2",
    "efficientnet": """
        efficientnet_b0 efficientnet_b0_gn efficientnet_b1 efficientnet_b1_pruned efficientnet_b2
        efficientnet_b2_pruned efficientnet_b3 efficientnet_b3_gn efficientnet_b3_pruned efficientnet_b4
        efficientnet_b5 efficientnet_b6 efficientnet_blur_b0 efficientnet_cc_b0_4e efficientnet_cc_b0_8e
        efficientnet_cc_b1_8e efficientnet_el efficientnet_el_pruned efficientnet_em efficientnet_es
        efficientnet_es_pruned efficientnet_h_b5 efficientnet_lite0 efficientnet_lite1 efficientnet_lite2
        efficientnet_lite3 efficientnet_lite4 efficientnet_x_b3 efficientnet_x_b5 efficientnetv2_m
        efficientnetv2_rw_m efficientnetv2_rw_s efficientnetv2_rw_t efficientnetv2_s fbnetc_100
        gc_efficientnetv2_rw_t mixnet_l mixnet_m mixnet_s mixnet_xl mixnet_xxl mnasnet_050 mnasnet_075 mnasnet_100
        mnasnet_140 mnasnet_small mobilenet_edgetpu_100 mobilenet_edgetpu_v2_l mobilenet_edgetpu_v2_m
        mobilenet_edgetpu_v2_s mobilenet_edgetpu_v2_xs mobilenetv1_100 mobilenetv1_100h mobilenetv1_125
        mobilenetv2_035 mobilenetv2_050 mobilenetv2_075 mobilenetv2_100 mobilenetv2_110d mobilenetv2_120d
        mobilenetv2_140 semnasnet_050 semnasnet_075 semnasnet_100 semnasnet_140 spnasnet_100 test_efficientnet
        test_efficientnet_evos test_efficientnet_gn test_efficientnet_ln tf_efficientnet_b0 tf_efficientnet_b1
        tf_efficientnet_b2 tf_efficientnet_b3 tf_efficientnet_b4 tf_efficientnet_b5 tf_efficientnet_b6
        tf_efficientnet_cc_b0_4e tf_efficientnet_cc_b0_8e tf_efficientnet_cc_b1_8e tf_efficientnet_el
        tf_efficientnet_em tf_efficientnet_es tf_efficientnet_lite0 tf_efficientnet_lite1 tf_efficientnet_lite2
        tf_efficientnet_lite3 tf_efficientnet_lite4 tf_efficientnetv2_b0 tf_efficientnetv2_b1 tf_efficientnetv2_b2
        tf_efficientnetv2_b3 tf_efficientnetv2_m tf_efficientnetv2_s tf_mixnet_l tf_mixnet_m tf_mixnet_s tinynet_a
        tinynet_b tinynet_c tinynet_d tinynet_e
    """,
    "efficientvim": """
        efficientvim_m1 efficientvim_m1_dist efficientvim_m2 efficientvim_m2_dist efficientvim_m3
        efficientvim_m3_dist efficientvim_m4 efficientvim_m4_dist
    """,
    "efficientvit_mit": "efficientvit_b0 efficientvit_b1 efficientvit_b2 efficientvit_b3 efficientvit_l1",
    "efficientvit_msra": """
        efficientvit_m0 efficientvit_m1 efficientvit_m2 efficientvit_m3 efficientvit_m4 efficientvit_m5
    """,
    "fastvit": """
        fastvit_ma36 fastvit_mci0 fastvit_mci1 fastvit_mci2 fastvit_s12 fastvit_sa12 fastvit_sa24 fastvit_sa36
        fastvit_t12 fastvit_t8
    """,
    "focalnet": "focalnet_small_lrf focalnet_small_srf focalnet_tiny_lrf focalnet_tiny_srf",
    "gcvit": "gcvit_small gcvit_tiny gcvit_xtiny gcvit_xxtiny",
    "ghostnet": """
        ghostnet_050 ghostnet_100 ghostnet_130 ghostnetv2_100 ghostnetv2_130 ghostnetv2_160 ghostnetv3_050
        ghostnetv3_100 ghostnetv3_130 ghostnetv3_160
    """,
    "hardcorenas": "hardcorenas_a hardcorenas_b hardcorenas_c hardcorenas_d hardcorenas_e hardcorenas_f",
    "hgnet": "hgnet_small hgnet_tiny hgnetv2_b0 hgnetv2_b1 hgnetv2_b2 hgnetv2_b3 hgnetv2_b4 hgnetv2_b5",
    "iformer": """
        iformer_l iformer_l2 iformer_l2_distilled iformer_l_distilled iformer_m iformer_m_distilled iformer_s
        iformer_t
    """,
    "inception_next": "inception_next_atto inception_next_small inception_next_tiny",
    "lcnetv2": "lcnetv2_base lcnetv2_large lcnetv2_small",
    "lowformer": """
        lowformer_b0 lowformer_b1 lowformer_b15 lowformer_b2 lowformer_b3 lowformer_e1 lowformer_e2 lowformer_e3
    """,
    "mambaout": "mambaout_femto mambaout_kobe mambaout_small mambaout_small_rw mambaout_tiny test_mambaout",
    "maxxvit": """
        coatnet_0_224 coatnet_0_rw_224 coatnet_1_224 coatnet_1_rw_224 coatnet_bn_0_rw_224 coatnet_nano_cc_224
        coatnet_nano_rw_224 coatnet_pico_rw_224 coatnet_rmlp_0_rw_224 coatnet_rmlp_1_rw2_224 coatnet_rmlp_1_rw_224
        coatnet_rmlp_nano_rw_224 coatnext_nano_rw_224 maxvit_nano_rw_256 maxvit_pico_rw_256 maxvit_rmlp_nano_rw_256
        maxvit_rmlp_pico_rw_256 maxvit_rmlp_tiny_rw_256 maxvit_tiny_pm_256 maxvit_tiny_rw_224 maxvit_tiny_rw_256
        maxvit_tiny_tf_224 maxvit_tiny_tf_384 maxvit_tiny_tf_512 maxxvit_rmlp_nano_rw_256 maxxvit_rmlp_tiny_rw_256
        maxxvitv2_nano_rw_256
    """,
    "metaformer": "caformer_m36 caformer_s18 caformer_s36 convformer_m36 convformer_s18 convformer_s36",
    "mobilenetv3": """
        fbnetv3_b fbnetv3_d fbnetv3_g lcnet_035 lcnet_050 lcnet_075 lcnet_100 lcnet_150 mobilenetv3_large_075
        mobilenetv3_large_100 mobilenetv3_large_150d mobilenetv3_rw mobilenetv3_small_050 mobilenetv3_small_075
        mobilenetv3_small_100 mobilenetv4_conv_aa_large mobilenetv4_conv_aa_medium mobilenetv4_conv_blur_medium
        mobilenetv4_conv_large mobilenetv4_conv_medium mobilenetv4_conv_small mobilenetv4_conv_small_035
        mobilenetv4_conv_small_050 mobilenetv4_hybrid_large mobilenetv4_hybrid_large_075 mobilenetv4_hybrid_medium
        mobilenetv4_hybrid_medium_075 tf_mobilenetv3_large_075 tf_mobilenetv3_large_100
        tf_mobilenetv3_large_minimal_100 tf_mobilenetv3_small_075 tf_mobilenetv3_small_100
        tf_mobilenetv3_small_minimal_100
    """,
    "mobilevit": """
        mobilevit_s mobilevit_xs mobilevit_xxs mobilevitv2_050 mobilevitv2_075 mobilevitv2_100 mobilevitv2_125
        mobilevitv2_150 mobilevitv2_175 mobilevitv2_200
    """,
    "mvitv2": "mvitv2_base mvitv2_base_cls mvitv2_small mvitv2_small_cls mvitv2_tiny",
    "pit": "pit_s_224 pit_s_distilled_224 pit_ti_224 pit_ti_distilled_224 pit_xs_224 pit_xs_distilled_224",
    "pvt_v2": "pvt_v2_b0 pvt_v2_b1 pvt_v2_b2 pvt_v2_b2_li pvt_v2_b3",
    "rdnet": "rdnet_small rdnet_tiny",
    "repghost": """
        repghostnet_050 repghostnet_058 repghostnet_080 repghostnet_100 repghostnet_111 repghostnet_130
        repghostnet_150 repghostnet_200
    """,
    "repvit": "repvit_m0_9 repvit_m1 repvit_m1_0 repvit_m1_1 repvit_m1_5 repvit_m2 repvit_m2_3 repvit_m3",
    "rexnet": """
        rexnet_100 rexnet_130 rexnet_150 rexnet_200 rexnet_300 rexnetr_100 rexnetr_130 rexnetr_150 rexnetr_200
        rexnetr_300
    """,
    "shvit": "shvit_s1 shvit_s2 shvit_s3 shvit_s4",
    "starnet": "starnet_s050 starnet_s1 starnet_s100 starnet_s150 starnet_s2 starnet_s3 starnet_s4",
    "swiftformer": "swiftformer_l1 swiftformer_l3 swiftformer_s swiftformer_xs",
    "tiny_vit": "tiny_vit_11m_224 tiny_vit_21m_224 tiny_vit_21m_384 tiny_vit_21m_512 tiny_vit_5m_224",
    "twins": "twins_pcpvt_base twins_pcpvt_small twins_svt_base twins_svt_small",
    "vitamin": "vitamin_small_224",
    "vovnet": "ese_vovnet19b_dw ese_vovnet19b_slim_dw",
    "xception": "legacy_xception",
    "xception_aligned": "xception41 xception41p xception65 xception65p xception71",
    "xcit": """
        xcit_nano_12_p16_224 xcit_nano_12_p16_384 xcit_nano_12_p8_224 xcit_nano_12_p8_384 xcit_small_12_p16_224
        xcit_small_12_p16_384 xcit_small_12_p8_224 xcit_small_12_p8_384 xcit_small_24_p16_224 xcit_small_24_p16_384
        xcit_small_24_p8_224 xcit_small_24_p8_384 xcit_tiny_12_p16_224 xcit_tiny_12_p16_384 xcit_tiny_12_p8_224
        xcit_tiny_12_p8_384 xcit_tiny_24_p16_224 xcit_tiny_24_p16_384 xcit_tiny_24_p8_224 xcit_tiny_24_p8_384
    """,
}
